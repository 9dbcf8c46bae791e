"""A judge behind our own OpenAI-compatible server, through one pooled connection: m votes are one request with n = m.

With structured output the engine can only write an answer in the form that the prompt asks for.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
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
from burnish.judges.verdicts.verdict import ANSWER_FORM

LOW_PRIORITY = 10
"""After live traffic and after the gate, if the engine schedules by priority."""
_REFUSED = (400, 404, 422, 501)
"""Statuses with which a server may refuse structured output."""
_REFUSED_FOR_GOOD = (400, 413, 422)
"""Statuses that say that the question itself is refused, for example for lack of context."""
log = structlog.get_logger(__name__)


class LocalJudge:
    """The model `model` at `url` (vLLM: the frozen base on the serving engine by default).

    With `structured` "auto", structured output is used until the server refuses it once. "on" requires it.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str = "",
        temperature: float = TEMPERATURE,
        max_tokens: int = MAX_TOKENS,
        timeout: float = VOTE_SECONDS,
        structured: Structured = "off",
    ) -> None:
        self.model = model
        self.usage = Usage()
        self._url = url.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._options = {"temperature": temperature, "max_tokens": max_tokens, "priority": LOW_PRIORITY}
        self._timeout = aiohttp.ClientTimeout(total=timeout, connect=min(2.0, timeout))
        self._structured = structured
        self._http: aiohttp.ClientSession | None = None

    def body(self, messages: Sequence[Mapping[str, str]], n: int) -> dict[str, Any]:
        """The request for `n` answers, in the present form."""
        asked = {"model": self.model, "messages": list(messages), "n": n, **self._options}
        return asked if self._structured == "off" else asked | {"structured_outputs": {"regex": ANSWER_FORM}}

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        asked = self.body(messages, n)
        status, reply = await self._post(asked)
        if status not in _REFUSED or "structured_outputs" not in asked:
            return self._texts(status, reply)
        refusal = str(reply)[:300]
        if self._structured == "on":
            raise JudgeUnavailable(f"the judge answered {status}, and structured output was required{SAID}{refusal}")
        # Structured output is to blame only if the request succeeds without it.
        del asked["structured_outputs"]
        texts = self._texts(*await self._post(asked))
        if self._structured == "auto":
            self._structured = "off"
            log.warning(
                "the judge's server refuses structured output; votes are now requested without it",
                model=self.model,
                status=status,
            )
        return texts

    async def _post(self, body: Mapping[str, Any]) -> tuple[int, Any]:
        """The status and the body: parsed if the status is 200, else its text."""
        if self._http is None:
            self._http = aiohttp.ClientSession(headers=self._headers, timeout=self._timeout)
        try:
            async with self._http.post(self._url, json=body) as response:
                return response.status, await (response.json() if response.status == 200 else response.text())
        except (aiohttp.ClientError, TimeoutError) as error:
            raise JudgeUnavailable(f"the judge did not answer: {type(error).__name__} {error}") from error
        except ValueError as error:
            raise JudgeUnavailable(
                f"the judge answered with something other than a chat completion{SAID}{error!r}"
            ) from error

    def _texts(self, status: int, reply: Any) -> list[str]:
        if status != 200:
            kind = JudgeRefused if status in _REFUSED_FOR_GOOD else JudgeUnavailable
            raise kind(f"the judge answered {status}{SAID}{_words(reply)}")
        try:
            texts = [choice["message"].get("content") or "" for choice in reply["choices"]]
            self.usage.add(reply.get("usage"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise JudgeUnavailable(
                f"the judge answered with something other than a chat completion{SAID}{error!r}"
            ) from error
        return texts

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()


def _words(refusal: object) -> str:
    """What a server says in a refusal: OpenAI's error message, or the beginning of the body."""
    try:
        return str(json.loads(str(refusal))["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return str(refusal)[:300]
