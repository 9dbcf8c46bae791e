"""Requests to the gateway as an ordinary client sends them: counted, never retried."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from burnish.server.rollout.forgetting_prompts import shown

N_AT_ONCE = 64
"""Requests of an exam at a time. vLLM answers 480 of them in about half the time of 16 at a time."""
PATIENCE = 600.0
"""Seconds for a reply. Of an exam's requests to a real model on two cores the last one waits for minutes."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: the id for feedback, the text with tool calls as the model writes them, and the original message."""

    response_id: str
    text: str
    message: Mapping[str, Any] = field(default_factory=dict)


class Client:
    """One key's requests to the gateway at `url`. `failures` describes each failed request."""

    def __init__(self, url: str, api_key: str) -> None:
        self.n_requests = 0
        self.failures: list[str] = []
        self._http = aiohttp.ClientSession(
            base_url=url,
            headers={"authorization": f"Bearer {api_key}"},
            timeout=aiohttp.ClientTimeout(total=PATIENCE),
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
        session: str = "",
        user: str = "",
        seed: int | None = None,
    ) -> Reply | None:
        """One reply. None if the request failed.

        `session` names the session, `user` the user, `seed` the engine's sampling seed. The request leaves out what is
        not given.
        """
        body: dict[str, Any] = {
            "model": model,
            "messages": list(messages),
            "temperature": temperature,
            "max_tokens": max_tokens,
        }
        if tools:
            body["tools"] = list(tools)
        body |= ({"user": user} if user else {}) | ({"seed": seed} if seed is not None else {})
        headers = {"x-burnish-session": session} if session else {}
        headers |= {} if may_train else {"x-burnish-train": "false"}
        answer = await self._post("/v1/chat/completions", body, headers)
        if answer is None:
            return None
        message = answer["choices"][0]["message"]
        return Reply(answer["id"], shown(message), message)

    async def answers(
        self,
        model: str,
        prompts: Sequence[Sequence[Mapping[str, Any]]],
        tools: Sequence[Sequence[Mapping[str, Any]]] | None = None,
        *,
        temperature: float,
        max_tokens: int,
    ) -> list[str]:
        """One reply to each prompt, out of training. A missing reply is empty."""
        slots = asyncio.Semaphore(N_AT_ONCE)
        sampling: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens, "may_train": False}

        async def ask(messages: Sequence[Mapping[str, Any]], offered: Sequence[Mapping[str, Any]]) -> str:
            async with slots:
                reply = await self.ask(model, messages, tools=offered, **sampling)
                return reply.text if reply is not None else ""

        return list(await asyncio.gather(*map(ask, prompts, tools or [()] * len(prompts))))

    async def rate(self, response_id: str, rating: str, comment: str | None, demonstration: str | None = None) -> None:
        """Explicit feedback on a reply. A `demonstration` is a reply that would have been right."""
        said = {"comment": comment, "demonstration": demonstration}
        body = {"target": response_id, "rating": rating} | {name: text for name, text in said.items() if text}
        await self._post("/v1/feedback", body, {})

    async def comment(self, response_id: str, words: str) -> None:
        """A user's comment on a reply, without a rating."""
        await self._post("/v1/feedback", {"target": response_id, "comment": words}, {})

    async def conclude(self, session: str, is_success: bool) -> None:
        """The outcome of a whole session."""
        await self._post("/v1/feedback", {"target": session, "about": "session", "outcome": is_success}, {})

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
