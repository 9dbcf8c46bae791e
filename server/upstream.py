"""The way to the engines: one shared connection pool, turn by turn, with every failure turned into an error of ours.

A connection that cannot be made, and an engine that says it is full, send the request to the next engine. A request that may
have reached an engine is never sent to another: what killed one could kill them all.
"""

import itertools
from typing import Any

import aiohttp
import msgspec
import structlog

from burnish.errors import EngineError, EngineUnavailable, RequestError
from burnish.routes import Routes
from server.envelope import TOO_LARGE

READ_TIMEOUT = 600.0  # seconds without a byte; OpenAI's own clients give up after as many
KEEP_ALIVE = 3.0  # less than the 5 s after which vLLM closes an idle connection, so that none is reused while it closes
log = structlog.get_logger(__name__)


class Engines:
    """A pool of connections to the engines in the serving table. Make it inside the event loop."""

    def __init__(self, connect_timeout: float) -> None:
        self._turn = itertools.count()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout, sock_read=READ_TIMEOUT),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def ask(self, routes: Routes, path: str, body: bytes, request_id: str) -> aiohttp.ClientResponse:
        """The engine's answer, status 200 and unread. `request_id` becomes the response id behind `chatcmpl-` or `cmpl-`."""
        reason = "no engine is in the serving table yet"
        for url in self._in_turn(routes):
            try:
                response = await self._session.post(url + path, data=body, headers=_headers(routes, request_id))
            except aiohttp.ClientConnectorError as error:
                reason = "no engine can be reached"
                log.warning("engine cannot be reached", url=url, error=str(error))
                continue
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                log.warning("engine failed before it answered", url=url, request_id=request_id, error=repr(error))
                raise EngineUnavailable("the engine went away before it answered; please try again") from error
            if response.status == 200:
                return response
            text = await _text(response)
            if response.status in (429, 503):
                reason = "every engine is full"
                continue
            raise _refusal(response.status, text, request_id)
        raise EngineUnavailable(f"{reason}; please try again")

    async def ask_remote(self, routes: Routes, path: str, body: bytes, request_id: str) -> aiohttp.ClientResponse:
        """The remote model's answer through the process that talks to it (server/remote.py)."""
        try:
            response = await self._session.post(routes.remote_url + path, data=body, headers=_headers(routes, request_id))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("the remote model cannot be asked", url=routes.remote_url, request_id=request_id, error=repr(error))
            raise EngineUnavailable("neither an engine nor the remote model can be reached; please try again") from error
        if response.status == 200:
            return response
        raise _refusal(response.status, await _text(response), request_id)

    async def is_ready(self, routes: Routes) -> bool:
        """True where at least one engine answers its health check within a second."""
        for url in self._in_turn(routes):
            try:
                async with self._session.get(f"{url}/health", timeout=aiohttp.ClientTimeout(total=1.0)) as response:
                    if response.status == 200:
                        return True
            except (aiohttp.ClientError, TimeoutError, OSError):
                continue
        return False

    async def close(self) -> None:
        await self._session.close()

    def _in_turn(self, routes: Routes) -> list[str]:
        if not routes.engines:
            return []
        first = next(self._turn) % len(routes.engines)
        urls = (*routes.engines[first:], *routes.engines[:first])
        return [url.rstrip("/").removesuffix("/v1") for url in urls]


def engine_error(error: Any, request_id: str) -> EngineUnavailable:
    """What an `error` event of the engine's stream means for the client; the engine's own words stay in the log."""
    log.warning("engine failed in mid-stream", request_id=request_id, error=error)
    return EngineUnavailable("the engine failed while it was answering; please try again")


def _headers(routes: Routes, request_id: str) -> dict[str, str]:
    headers = {"content-type": "application/json", "x-request-id": request_id}
    if routes.engine_key:
        headers["authorization"] = f"Bearer {routes.engine_key}"
    return headers


async def _text(response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError):
        return b""


def _refusal(status: int, text: bytes, request_id: str) -> Exception:
    """An engine's error status as ours. Its words reach the client only where the client's own body is to blame."""
    if status in (400, 413, 422):
        try:
            error = msgspec.json.decode(text)["error"]
            message, param = str(error["message"]), error.get("param")
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
            message, param = "the engine cannot honour this request", None
        param = param.removeprefix("body.") if isinstance(param, str) else None
        return RequestError(message, code=TOO_LARGE if status == 413 else "invalid_value", param=param)
    log.error("engine refused", status=status, request_id=request_id, answer=text[:500].decode(errors="replace"))
    if status == 404:
        return EngineUnavailable("the engine does not have this version loaded at present; please try again")
    if status in (401, 403):
        return EngineError("the engine refuses the gateway's key; see the gateway's log")
    return EngineUnavailable("the engine failed; please try again")
