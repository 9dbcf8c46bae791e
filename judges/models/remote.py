"""A judge at any provider that litellm supports. Imported lazily: litellm takes seconds and 160 MB."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from burnish.errors import SAID
from burnish.judges.judge import (
    MAX_TOKENS,
    TEMPERATURE,
    VOTE_SECONDS,
    JudgeRefused,
    JudgeUnavailable,
    Structured,
    Usage,
)
from burnish.judges.verdicts.verdict import ANSWER_SCHEMA

log = structlog.get_logger(__name__)


class RemoteJudge:
    """`model` in litellm's notation, e.g. `openai/gpt-5`. `url` overrides the provider's address.

    With `structured` "auto", JSON of a schema is requested if litellm lists the model as capable, until it is refused
    once. "on" always requests it.
    """

    def __init__(
        self,
        model: str,
        *,
        url: str = "",
        api_key: str = "",
        temperature: float = TEMPERATURE,
        max_tokens: int = MAX_TOKENS,
        timeout: float = VOTE_SECONDS,
        structured: Structured = "off",
    ) -> None:
        self.model = model
        self.usage = Usage()
        self._options: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens, "timeout": timeout}
        self._structured: Structured | None = structured if structured != "auto" else None  # None: not known yet
        self._may_do_without = structured == "auto"
        if url:
            self._options["api_base"] = url
        if api_key:
            self._options["api_key"] = api_key

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        """One request per vote: few providers honour `n`. Failed votes are left out. If all fail, it is an error."""
        litellm = _litellm()
        litellm.suppress_debug_info = True  # it would print links to its documentation into our output
        if self._structured is None:
            self._structured = "on" if litellm.supports_response_schema(self.model) else "off"
        answers = await self._ask(messages, n)
        if (
            self._structured == "on"
            and self._may_do_without
            and all(_is_refusal(litellm, answer) for answer in answers)
        ):
            refusal, asked_again = answers[0], await self._ask(messages, n, structured="off")
            if any(isinstance(answer, str) for answer in asked_again):
                self._structured = "off"
                log.warning(
                    "the judge refuses structured output; asked without", model=self.model, error=_kind(refusal)
                )
            answers = asked_again
        good = [answer for answer in answers if isinstance(answer, str)]
        if not good:
            is_too_long = all(isinstance(answer, litellm.ContextWindowExceededError) for answer in answers)
            kind = JudgeRefused if is_too_long else JudgeUnavailable
            raise kind(f"the judge {self.model} did not answer: {_kind(answers[0])}{SAID}{answers[0]!r}"[:500])
        return good

    async def _ask(
        self, messages: Sequence[Mapping[str, str]], n: int, structured: Structured | None = None
    ) -> list[str | BaseException]:
        litellm = _litellm()
        options = dict(self._options)
        if (structured or self._structured) == "on":
            schema = {"name": "verdict", "strict": True, "schema": ANSWER_SCHEMA}
            options["response_format"] = {"type": "json_schema", "json_schema": schema}

        async def ask() -> str:
            reply = await litellm.acompletion(model=self.model, messages=list(messages), num_retries=0, **options)
            usage = getattr(reply, "usage", None)
            self.usage.add(usage.model_dump() if usage is not None else None)
            return reply.choices[0].message.content or ""

        return await asyncio.gather(*(ask() for _ in range(n)), return_exceptions=True)

    async def close(self) -> None:
        """litellm keeps its own pool."""


def names_provider(model: str) -> bool:
    """True if `model` begins with a provider of litellm (`openai/gpt-5`), and not with an owner (`Qwen/Qwen3-8B`)."""
    provider, slash, _ = model.partition("/")
    return bool(slash) and provider in {str(getattr(each, "value", each)) for each in _litellm().provider_list}


def _litellm() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    return litellm


def _kind(error: object) -> str:
    """The type of a provider's error and its status. Its message may quote what was asked."""
    status = getattr(error, "status_code", None)
    return type(error).__name__ if status is None else f"{type(error).__name__} ({status})"


def _is_refusal(litellm: Any, answer: str | BaseException) -> bool:
    return isinstance(
        answer, litellm.BadRequestError | litellm.UnsupportedParamsError | litellm.UnprocessableEntityError
    )
