"""The engine's key on every path: middleware that vLLM loads (`--middleware burnish.processes.engine_guard.Guard`).

vLLM 0.32 asks for its key below /v1, /v2, /inference and /cohere only. /tokenize, /invocations, /metrics, /scale_… and
what later releases add were open to every local process and, through DNS rebinding, to web pages. This module is loaded
in vLLM's process, so it imports little.
"""

import hmac
import os
from hashlib import sha256

from starlette.types import ASGIApp, Receive, Scope, Send

from burnish.errors import ConfigError

KEY = "VLLM_API_KEY"
_START = {
    "type": "http.response.start",
    "status": 401,
    "headers": [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")],
}
_BODY = {"type": "http.response.body", "body": b'{"error": "Unauthorized"}'}


class Guard:
    """Passes on what carries the key, and the start and end of the application. Raises ConfigError without a key."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        if not (key := os.environ.get(KEY)):
            raise ConfigError(f"{KEY} is not set; the engine would answer anybody")
        self._digest = sha256(b"Bearer " + key.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._has_key(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await send(_START)
            await send(_BODY)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _has_key(self, scope: Scope) -> bool:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(sha256(given).digest(), self._digest)
