"""vLLM behind the `Engine` seam, over its HTTP API."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from burnish.errors import EngineError, EngineUnavailable
from burnish.server.rollout.engine.engine import Reply
from burnish.server.rollout.engine.vllm_http import VllmHttp

N_TOLD = 20
"""vLLM's --max-logprobs."""
PATIENCE = 3600.0
"""Seconds for a whole request. A question at low priority may wait long behind live traffic, and that is no failure. A
server that is gone refuses the connection at once.
"""
LOW_PRIORITY = 5
"""After live traffic, before the judge."""


class VllmEngine:
    """One vLLM server at `url` (without a trailing `/v1`)."""

    def __init__(self, url: str, api_key: str = "", *, timeout: float = PATIENCE) -> None:
        self._http = VllmHttp(url, api_key, timeout=timeout)
        self.url = self._http.url

    async def models(self) -> Sequence[str]:
        listing = _tree(await self._http.call("GET", "/v1/models"))
        return [str(model["id"]) for model in listing["data"]]

    async def load(self, name: str, path: str) -> None:
        await self._http.call("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})

    async def unload(self, name: str) -> None:
        try:
            await self._http.call("POST", "/v1/unload_lora_adapter", {"lora_name": name})
        except EngineUnavailable:
            raise
        except EngineError as error:
            if "404" not in str(error):
                raise

    async def next_logprobs(self, model: str, token_ids: Sequence[int]) -> Mapping[int, float]:
        # Not prompt_logprobs: on a CPU it ends a vLLM with LoRA if other requests share the batch. Not
        # logprob_token_ids: it blanks the top_logprobs of every request in the batch. Both were seen with 0.32.
        body = {
            "model": model,
            "prompt": list(token_ids),
            "max_tokens": 1,
            "temperature": 1.0,
            "logprobs": N_TOLD,
            "return_tokens_as_token_ids": True,
            "priority": LOW_PRIORITY,
        }
        reply = _tree(await self._http.call("POST", "/v1/completions", body))
        alternatives = (reply["choices"][0].get("logprobs") or {}).get("top_logprobs") or []
        if not alternatives:
            raise EngineError("expected the log-probs of the next token, got none")
        return {int(name.removeprefix("token_id:")): float(value) for name, value in alternatives[0].items()}

    async def chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        temperature: float = 0.0,
        max_tokens: int = 256,
        priority: int = 0,
        seed: int | None = None,
    ) -> Reply:
        body: dict[str, Any] = {
            "model": model,
            "messages": list(messages),
            "temperature": temperature,
            "max_tokens": max_tokens,
            "priority": priority,
            "return_token_ids": True,
        }
        if tools:
            body["tools"] = list(tools)
        if seed is not None:
            body["seed"] = seed
        answer = _tree(await self._http.call("POST", "/v1/chat/completions", body))
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        return Reply(
            choice["message"],
            choice.get("finish_reason"),
            int(usage.get("completion_tokens") or 0),
            answer.get("prompt_token_ids") or (),
            choice.get("token_ids") or (),
        )

    async def close(self) -> None:
        await self._http.close()


def _tree(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise EngineError(f"the engine's answer is not JSON: {text[:200]!r}") from error
