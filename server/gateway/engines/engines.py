"""The way to the engines: one shared connection pool, engines in turn, and every failure becomes one of our errors.

If a connection cannot be made or an engine says that it is full, the request goes to the next engine. A request that
may have reached an engine is never sent to another, because what ended one could end them all.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import structlog

from burnish.errors import BurnishError, EngineError, EngineUnavailable, RequestError
from burnish.server.gateway.engines.connection_pool import Pool, Response
from burnish.server.gateway.http.error_envelope import TOO_LARGE
from burnish.serving_table import Routes

CONNECT_SECONDS = 2.0  # seconds to reach an engine before a 503
READ_TIMEOUT = 600.0  # seconds without a byte; OpenAI's own clients give up after as many
KEEP_ALIVE = 3.0  # less than the 5 s after which vLLM closes an idle connection, so that none is reused while it closes
EMBEDDINGS = "/v1/embeddings"
log = structlog.get_logger(__name__)


class Engines:
    """A pool of connections to the engines in the serving table. Create it inside the event loop."""

    def __init__(self, connect_timeout: float = CONNECT_SECONDS) -> None:
        self._turn = itertools.count()
        self._pool = Pool(connect_timeout=connect_timeout, read_timeout=READ_TIMEOUT, keep_alive=KEEP_ALIVE)

    async def ask(
        self, routes: Routes, path: str, body: bytes, request_id: str, meanwhile: Callable[[], None] | None = None
    ) -> Response:
        """The engine's answer with status 200, unread. `request_id` becomes the response id after `chatcmpl-` or
        `cmpl-`. `meanwhile` is called while the engine works, once for each engine that is asked.
        """
        reason = "no engine is in the serving table yet"
        for url in self._in_turn(routes):
            try:
                response = await self._pool.request(url, path, _headers(routes, request_id), body, meanwhile)
            except ConnectionRefusedError as error:
                reason = "no engine can be reached"
                log.warning("engine cannot be reached", url=url, error=str(error))
                continue
            except OSError as error:
                log.warning("engine failed before it answered", url=url, request_id=request_id, error=repr(error))
                raise EngineUnavailable("the engine went away before it answered; please try again") from error
            if response.status == 200:
                return response
            status, text = response.status, await _text(response)
            if status in (429, 503):
                reason = "every engine is full"
                continue
            raise _refusal(path, status, text, request_id)
        raise EngineUnavailable(f"{reason}; please try again")

    async def ask_remote(self, routes: Routes, path: str, body: bytes, request_id: str) -> Response:
        """The remote model's answer, through the process that asks it (server/gateway/remote_process.py)."""
        try:
            response = await self._pool.request(routes.remote_url, path, _headers(routes, request_id), body)
        except OSError as error:
            log.warning(
                "the remote model cannot be asked", url=routes.remote_url, request_id=request_id, error=repr(error)
            )
            raise EngineUnavailable(
                "neither an engine nor the remote model can be reached; please try again"
            ) from error
        if response.status == 200:
            return response
        raise _refusal(path, response.status, await _text(response), request_id)

    async def is_ready(self, routes: Routes) -> bool:
        """True if at least one engine answers its health check within a second."""
        for url in self._in_turn(routes):
            try:
                async with asyncio.timeout(1.0):
                    response = await self._pool.request(url, "/health", _headers(routes, "health"))
                response.close()
                if response.status == 200:
                    return True
            except OSError:
                continue
        return False

    def close(self) -> None:
        self._pool.close()

    def _in_turn(self, routes: Routes) -> Sequence[str]:
        urls = _bases(routes.engines)
        if len(urls) < 2:
            return urls
        first = next(self._turn) % len(urls)
        return (*urls[first:], *urls[:first])


@lru_cache(maxsize=64)
def _bases(engines: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(url.rstrip("/").removesuffix("/v1") for url in engines)


def engine_error(error: Any, request_id: str, *, has_begun: bool) -> BurnishError:
    """The meaning of an `error` event in the engine's stream for the client. The engine's words stay in its own log.

    As the first event it may mean a 400: vLLM checks grammars after it has begun to answer.
    """
    if not has_begun and isinstance(error, dict) and error.get("code") == 400:
        return _blamed(error, 400)
    kind = error.get("type") if isinstance(error, dict) else None
    log.warning("engine failed in mid-stream", request_id=request_id, error=str(kind)[:100])
    return EngineUnavailable("the engine failed while it was answering; please try again")


def _headers(routes: Routes, request_id: str) -> bytes:
    key = f"authorization: Bearer {routes.engine_key}\r\n" if routes.engine_key else ""
    return f"content-type: application/json\r\nx-request-id: {request_id}\r\n{key}".encode()


async def _text(response: Response) -> bytes:
    try:
        return await response.read()
    except OSError:
        return b""
    finally:
        response.close()


def _refusal(path: str, status: int, text: bytes, request_id: str) -> Exception:
    """An engine's error status as ours. Its message reaches the client only if the client's body is at fault."""
    if status in (400, 413, 422):
        try:
            return _blamed(msgspec.json.decode(text)["error"], status)
        except (msgspec.DecodeError, KeyError, TypeError):
            return _blamed(None, status)
    # vLLM has the route only if its model supports it; its 404 for a version that is not loaded names the model
    if path == EMBEDDINGS and (status in (405, 501) or (status == 404 and b"does not exist" not in text)):
        return RequestError("model: the engine's model has no embeddings", param="model", code="unsupported")
    log.error("engine refused", status=status, request_id=request_id)  # its own log says why, with the same request id
    if status == 404:
        return EngineUnavailable("the engine does not have this version loaded at present; please try again")
    if status in (401, 403):
        return EngineError("the engine refuses the gateway's key; see the gateway's log")
    return EngineUnavailable("the engine failed; please try again")


def _blamed(error: Any, status: int) -> RequestError:
    """The engine's message about a body that it refuses."""
    try:
        message, param = str(error["message"]), error.get("param")
    except (KeyError, TypeError, AttributeError):
        message, param = "the engine cannot honour this request", None
    param = param.removeprefix("body.") if isinstance(param, str) else None
    code = TOO_LARGE if status == 413 else "invalid_value"
    if "maximum context length" in message or "maximum model length" in message:
        code = "context_length_exceeded"  # OpenAI's code, at which harnesses compact
    return RequestError(message, code=code, param=param)
