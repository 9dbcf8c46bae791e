"""HTTP to one vLLM server, off the hot path: one session, and every failure becomes one of our errors."""

from collections.abc import Mapping
from typing import Any

import aiohttp

from burnish.errors import SAID, EngineError, EngineUnavailable


class VllmHttp:
    """The server at `url` (with or without a trailing `/v1`). `timeout` is for a whole request, in seconds."""

    def __init__(self, url: str, api_key: str = "", *, timeout: float = 120.0) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout, connect=2.0)
        self._session: aiohttp.ClientSession | None = None

    async def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """The answer's body. Raises EngineError if the server refuses, EngineUnavailable if it fails or does not
        answer.
        """
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers, timeout=self._timeout)
        try:
            async with self._session.request(method, self.url + path, json=body) as response:
                text = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineUnavailable(f"{method} {self.url}{path}: {type(error).__name__}: {error}") from error
        if response.status >= 400:
            kind = EngineUnavailable if response.status >= 500 else EngineError
            said = text[:300].decode(errors="replace")
            raise kind(f"{method} {path}: the engine answered {response.status}{SAID}{said}")
        return text

    async def close(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()
