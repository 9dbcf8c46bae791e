"""The gateway as the pages see it: its public HTTP routes, asked with the key of the person who looks.

Every failure is an `ApiError` with a status and a sentence. `transport` replaces the network in tests.
"""

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx

Tree = dict[str, Any]
PATIENCE = httpx.Timeout(20.0, connect=3.0)


class ApiError(Exception):
    """A refusal of the gateway, or its absence (502)."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


class AdminApi:
    """The routes, asked with one key."""

    def __init__(self, http: httpx.AsyncClient, key: str) -> None:
        self._http = http
        self._headers = {"authorization": f"Bearer {key}"}

    async def get(self, path: str, **query: Any) -> Tree:
        """The JSON answer of `path`. None and empty texts are left out of the query. Raises ApiError."""
        wanted = {name: value for name, value in query.items() if value not in (None, "")}
        return await self._ask("GET", path, params=wanted)

    async def post(self, path: str, body: Tree) -> Tree:
        """The JSON answer. Raises ApiError."""
        return await self._ask("POST", path, json={name: value for name, value in body.items() if value is not None})

    async def chat(self, model: str, prompt: str, options: Tree) -> AsyncIterator[Tree]:
        """A streamed reply: `{"text": …}` for each piece, then `{"turn": its id}`. Raises ApiError."""
        body = {"model": model, "messages": [{"role": "user", "content": prompt}], "stream": True, **options}
        turn = None
        try:
            async with self._http.stream("POST", "/v1/chat/completions", json=body, headers=self._headers) as answer:
                if answer.status_code != 200:
                    await answer.aread()
                    raise _refusal(answer)
                async for line in answer.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    chunk = json.loads(line[len("data: ") :])
                    turn = chunk.get("id") or turn
                    for choice in chunk.get("choices", ()):
                        if text := choice["delta"].get("content"):
                            yield {"text": text}
        except httpx.HTTPError as error:
            raise _absent(error) from error
        yield {"turn": turn}

    async def _ask(self, method: str, path: str, **options: Any) -> Tree:
        try:
            answer = await self._http.request(method, path, headers=self._headers, **options)
        except httpx.HTTPError as error:
            raise _absent(error) from error
        if answer.status_code >= 400:
            raise _refusal(answer)
        tree: Tree = answer.json()
        return tree


def on(agent: str, path: str = "") -> str:
    """The admin path below an agent."""
    return f"/admin/agents/{quote(agent, safe='')}{path}"


def segment(name: str) -> str:
    """`name` as one segment of a path."""
    return quote(name, safe="")


def make_http(url: str, transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
    """The connections to the gateway at `url`. No proxy of the environment stands between."""
    return httpx.AsyncClient(base_url=url, timeout=PATIENCE, transport=transport, trust_env=False)


def _absent(error: httpx.HTTPError) -> ApiError:
    return ApiError(502, f"the gateway does not answer ({type(error).__name__}); is `burnish up` running?")


def _refusal(answer: httpx.Response) -> ApiError:
    try:
        error = answer.json()["error"]
        return ApiError(answer.status_code, str(error["message"]), str(error.get("code") or ""))
    except (ValueError, KeyError, TypeError):
        return ApiError(answer.status_code, f"the gateway answered {answer.status_code}")
