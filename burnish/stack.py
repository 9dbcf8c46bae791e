"""The parts of a whole Burnish on one machine, and how to tell that each works."""

import sys
from collections.abc import Awaitable, Callable, Mapping

import aiohttp

from burnish import config
from burnish.supervisor import Part

DESCRIPTIONS = {
    "engine": "Run vLLM with the flags Burnish needs.",
    "gateway": "Run the OpenAI-compatible endpoint.",
    "ingester": "Move recorded turns from the segments into the journal.",
    "swapper": "Try candidate versions on the engine and make the good ones live.",
    "judge": "Judge recorded turns.",
    "learner": "Train on judged turns.",
}


def parts_of(settings: config.Settings, environment: Mapping[str, str]) -> list[Part]:
    """What `burnish up` supervises, in the order of starting."""
    from server.launch import engine_url

    child = {**environment, **config.to_environment(settings), "PYTHONUNBUFFERED": "1"}
    left_out = {"engine"} if settings.engine.urls else set()
    left_out |= set() if settings.learner.enabled else {"learner"}
    names = [name for name in DESCRIPTIONS if name not in left_out]
    checks = {"engine": engine_url(settings) + "/health", "gateway": gateway_url(settings) + "/healthz"}
    patience = {"engine": 900.0}
    return [
        Part(
            name=name,
            command=[sys.executable, "-m", "burnish", name],
            environment=child,
            is_healthy=_answers(checks[name]) if name in checks else None,
            patience=patience.get(name, 120.0),
            # the gateway lets running replies end for up to 20 s
            stop_seconds={"gateway": 25.0, "engine": 20.0, "learner": 20.0}.get(name, 10.0),
        )
        for name in names
    ]


def gateway_url(settings: config.Settings) -> str:
    host = settings.gateway.host
    return f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{settings.gateway.port}"


def _answers(url: str) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        try:
            timeout = aiohttp.ClientTimeout(total=5)
            async with aiohttp.ClientSession(timeout=timeout) as http, http.get(url) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    return check
