"""Requests to the gateway, as an ordinary client makes them: counted, never retried."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from server.retention import shown

N_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: the id by which feedback is given, and the text with tool calls as the model writes them."""

    response_id: str
    text: str


class Client:
    """One key's requests to the gateway at `url`; `failures` tells of each that failed."""

    def __init__(self, url: str, api_key: str) -> None:
        self.n_requests = 0
        self.failures: list[str] = []
        self._http = aiohttp.ClientSession(
            base_url=url,
            headers={"authorization": f"Bearer {api_key}"},
            timeout=aiohttp.ClientTimeout(total=60),
        )

    async def ask(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        temperature: float,
        max_tokens: int,
        tools: Sequence[Mapping[str, Any]] = (),
        may_train: bool = True,
        user: str = "",
        seed: int | None = None,
    ) -> Reply | None:
        """One reply; None where the request failed. `user` is who asks, `seed` the engine's for what it draws; without, nothing is said."""
        body: dict[str, Any] = {
            "model": model,
            "messages": list(messages),
            "temperature": temperature,
            "max_tokens": max_tokens,
        }
        if tools:
            body["tools"] = list(tools)
        body |= ({"user": user} if user else {}) | ({"seed": seed} if seed is not None else {})
        answer = await self._post("/v1/chat/completions", body, {} if may_train else {"x-burnish-train": "false"})
        return None if answer is None else Reply(answer["id"], shown(answer["choices"][0]["message"]))

    async def rate(self, response_id: str, rating: str, comment: str | None) -> None:
        """Explicit feedback on a reply."""
        body = {"target": response_id, "rating": rating} | ({"comment": comment} if comment else {})
        await self._post("/v1/feedback", body, {})

    async def close(self) -> None:
        await self._http.close()

    async def _post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        self.n_requests += 1
        try:
            async with self._http.post(path, json=body, headers=headers) as response:
                if response.status < 400:
                    return await response.json()
                self.failures.append(f"{path}: {response.status} {(await response.text())[:200]}")
        except (aiohttp.ClientError, TimeoutError) as error:
            self.failures.append(f"{path}: {error!r}")
        return None
