"""Whether an engine makes tokens, not only whether it answers: one token, before all waiting requests.

An engine whose worker hangs goes on saying that it is well, and every request waits for its time-out. One that is busy
may be slow with the token; then its counters move.
"""

import re
import time

import aiohttp

from burnish.config import BASE_NAME

INTERVAL = 10.0
"""Seconds between two tokens of an engine that makes them."""
PATIENCE = 30.0
"""Seconds until the token is there, or a counter has moved."""
_COUNTERS = re.compile(r"^vllm:(?:generation|prompt)_tokens_total(?:\{[^}]*\})?\s+(\S+)", re.MULTILINE)
_ASKED = {"model": BASE_NAME, "prompt": [1], "max_tokens": 1, "temperature": 0.0, "priority": -1_000_000}


class EngineCanary:
    """Of one engine. Call it as a health check."""

    def __init__(self, url: str, key: str, *, patience: float = PATIENCE, interval: float = INTERVAL) -> None:
        self._url = url
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._patience = patience
        self._interval = interval
        self._next = 0.0
        self._counted: float | None = None

    async def __call__(self) -> bool:
        """True if the engine is up and has made a token of late."""
        async with aiohttp.ClientSession(headers=self._headers) as http:
            if not await _answers(http, f"{self._url}/health"):
                self._next = 0.0
                return False
            if time.monotonic() < self._next:
                return True
            if not (await self._makes_a_token(http) or await self._moves(http)):
                return False
        self._next = time.monotonic() + self._interval
        return True

    async def _makes_a_token(self, http: aiohttp.ClientSession) -> bool:
        limit = aiohttp.ClientTimeout(total=self._patience)
        try:
            async with http.post(f"{self._url}/v1/completions", json=_ASKED, timeout=limit) as answer:
                # an engine that refuses the question (400) has a front that works and a worker that nobody knows of
                return answer.status in (200, 400, 404) and bool(await answer.read())
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def _moves(self, http: aiohttp.ClientSession) -> bool:
        """True if its counters have moved since the last look."""
        before, self._counted = self._counted, await _count(http, f"{self._url}/metrics")
        return before is not None and self._counted is not None and self._counted != before


async def _answers(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url, timeout=aiohttp.ClientTimeout(total=5)) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


async def _count(http: aiohttp.ClientSession, url: str) -> float | None:
    try:
        async with http.get(url, timeout=aiohttp.ClientTimeout(total=5)) as response:
            found = _COUNTERS.findall(await response.text())
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return None
    return sum(map(float, found)) if found else None
