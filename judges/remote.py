"""A judge at any provider that litellm knows. Imported lazily: litellm takes seconds and 160 MB."""

import asyncio
import os
from collections.abc import Mapping, Sequence

from judges.judge import JudgeUnavailable


class RemoteJudge:
    """`model` in litellm's notation, e.g. `openai/gpt-5`; `url` overrides the provider's address."""

    def __init__(
        self,
        model: str,
        *,
        url: str = "",
        api_key: str = "",
        temperature: float = 0.6,
        max_tokens: int = 64,
        timeout: float = 30.0,
    ) -> None:
        self.model = model
        self._options = {"temperature": temperature, "max_tokens": max_tokens, "timeout": timeout}
        if url:
            self._options["api_base"] = url  # type: ignore[assignment]
        if api_key:
            self._options["api_key"] = api_key  # type: ignore[assignment]

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        """One request per vote: few providers honour `n`. Votes that failed are left out; all failing is an error."""
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        import litellm

        async def ask() -> str:
            reply = await litellm.acompletion(model=self.model, messages=list(messages), num_retries=0, **self._options)
            return reply.choices[0].message.content or ""

        answers = await asyncio.gather(*(ask() for _ in range(n)), return_exceptions=True)
        good = [answer for answer in answers if isinstance(answer, str)]
        if not good:
            raise JudgeUnavailable(f"the judge {self.model} did not answer: {answers[0]!r}"[:500])
        return good

    async def close(self) -> None:
        """litellm keeps its own pool."""
