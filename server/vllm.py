"""vLLM behind the `Engine` seam, over its HTTP API."""

from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from burnish.errors import EngineError, EngineUnavailable
from server.engine import Reply

N_TOLD = 20
"""vLLM's --max-logprobs."""
LOW_PRIORITY = 5
"""Behind live traffic, before the judge."""


class VllmEngine:
    """One vLLM server at `url` (without a trailing `/v1`)."""

    def __init__(self, url: str, api_key: str = "", *, timeout: float = 120.0) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout, connect=2.0)
        self._http: aiohttp.ClientSession | None = None

    async def models(self) -> Sequence[str]:
        listing = await self._call("GET", "/v1/models")
        return [str(model["id"]) for model in listing["data"]]

    async def load(self, name: str, path: str) -> None:
        await self._call("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})

    async def unload(self, name: str) -> None:
        try:
            await self._call("POST", "/v1/unload_lora_adapter", {"lora_name": name})
        except EngineUnavailable:
            raise
        except EngineError as error:
            if "404" not in str(error):
                raise

    async def next_logprobs(self, model: str, token_ids: Sequence[int]) -> Mapping[int, float]:
        # Not prompt_logprobs, which kills a vLLM with LoRA on a CPU when other requests share the batch, and not
        # logprob_token_ids, which blanks the top_logprobs of everyone in the batch (seen with 0.32).
        body = {
            "model": model,
            "prompt": list(token_ids),
            "max_tokens": 1,
            "temperature": 1.0,
            "logprobs": N_TOLD,
            "return_tokens_as_token_ids": True,
            "priority": LOW_PRIORITY,
        }
        reply = await self._call("POST", "/v1/completions", body)
        told = (reply["choices"][0].get("logprobs") or {}).get("top_logprobs") or []
        if not told:
            raise EngineError("expected the log-probs of the next token, got none")
        return {int(name.removeprefix("token_id:")): float(value) for name, value in told[0].items()}

    async def chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        temperature: float = 0.0,
        max_tokens: int = 256,
        priority: int = 0,
    ) -> Reply:
        body: dict[str, Any] = {
            "model": model,
            "messages": list(messages),
            "temperature": temperature,
            "max_tokens": max_tokens,
            "priority": priority,
        }
        if tools:
            body["tools"] = list(tools)
        answer = await self._call("POST", "/v1/chat/completions", body)
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        return Reply(choice["message"], choice.get("finish_reason"), int(usage.get("completion_tokens") or 0))

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        if self._http is None:
            self._http = aiohttp.ClientSession(headers=self._headers, timeout=self._timeout)
        try:
            async with self._http.request(method, self.url + path, json=body) as response:
                text = await response.text()
                if response.status >= 500:
                    raise EngineUnavailable(f"{method} {path}: the engine answered {response.status}: {text[:300]}")
                if response.status >= 400:
                    raise EngineError(f"{method} {path}: the engine answered {response.status}: {text[:300]}")
                return await response.json() if "json" in response.content_type else text
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineUnavailable(f"{method} {self.url}{path}: {type(error).__name__}: {error}") from error
