"""The source of shadow replies: one engine, which also reports its load."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from burnish.errors import EngineError, EngineUnavailable
from burnish.journal.shadows import Drawn
from burnish.records import IntArray
from burnish.server.rollout.engine.vllm_http import VllmHttp
from burnish.wire import chunks
from burnish.wire.draft import Draft

LOWEST_PRIORITY = 20
"""After live traffic (0), the gate (5) and the judge (10)."""
_REQUESTS = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{[^}]*\})?\s+(\S+)", re.MULTILINE)


class Source(Protocol):
    """One engine. Both methods raise EngineUnavailable if it does not answer. `draw` raises EngineError if it
    refuses."""

    async def n_requests(self) -> int:
        """Requests that run or wait in the engine now, from all clients."""

    async def draw(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        temperature: float,
        max_tokens: int,
    ) -> tuple[IntArray, Drawn]:
        """One reply by plain sampling at `temperature`, after all other requests, with the prompt's ids as the engine
        had them.

        Raises UnsoundReply if the ids and log-probs do not match. A cancelled caller takes its request back.
        """

    async def close(self) -> None:
        """Close connections."""


class UnsoundReply(EngineError):
    """The engine's reply cannot be trained on."""


class VllmSource:
    """vLLM at `url` (without a trailing `/v1`)."""

    def __init__(self, url: str, api_key: str = "", *, timeout: float = 120.0) -> None:
        self._http = VllmHttp(url, api_key, timeout=timeout)

    async def n_requests(self) -> int:
        metrics = (await self._http.call("GET", "/metrics")).decode()
        found = _REQUESTS.findall(metrics)
        if not found:
            raise EngineUnavailable(f"{self._http.url}/metrics says nothing of running or waiting requests")
        return int(sum(float(value) for value in found))

    async def draw(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        temperature: float,
        max_tokens: int,
    ) -> tuple[IntArray, Drawn]:
        body: dict[str, Any] = {
            "model": model,
            "messages": list(messages),
            "temperature": temperature,
            "max_tokens": max_tokens,
            "priority": LOWEST_PRIORITY,
            "logprobs": True,
            "return_token_ids": True,
        }
        if tools:
            body["tools"] = list(tools)
        raw = await self._http.call("POST", "/v1/chat/completions", body)
        try:
            chunk = chunks.read(raw)
            (choice,) = chunk.choices
        except (msgspec.DecodeError, ValueError) as error:
            raise UnsoundReply(f"the engine's answer is no completion of one choice: {raw[:200]!r}") from error
        draft = Draft.of(choice)
        if not draft.prompt_ids:
            draft.add_prompt(chunk.prompt_token_ids)
        if (problem := draft.quarantine()) is not None:
            raise UnsoundReply(problem)
        if draft.stop is not None:
            raise UnsoundReply(f"a stop string ended it: {draft.stop!r}")
        return draft.prompt_ids, Drawn(draft.message, draft.finish_reason or "", draft.token_ids, draft.logprobs)

    async def close(self) -> None:
        await self._http.close()
