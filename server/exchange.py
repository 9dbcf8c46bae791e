"""A request for a reply, in any dialect: guard and key are passed; from here it is pinned, asked, relayed and recorded.

Streams are relayed event by event as the engine emits them. The answer's status is sent with the first event, so that an
engine that fails before it still gets a 503; a failure after it is one error event. A client that leaves takes its engine
request with it, and what had been sampled is recorded as aborted.
"""

import re

import aiohttp
import structlog
from starlette.types import Receive, Scope, Send

from burnish.errors import BurnishError, EngineUnavailable
from burnish.keys import Scope as KeyScope
from server.call import Dialect
from server.identity import labels_of
from server.models import resolve
from server.sse import Splitter
from server.state import State
from server.turn import Turn
from server.wire import ClientWatch, headers_of, read_body, send_bytes

SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
Headers = list[tuple[bytes, bytes]]
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
log = structlog.get_logger(__name__)


async def answer(dialect: Dialect, state: State, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
    """One reply, streamed or whole."""
    caller = state.keyring.require(scope, KeyScope.INFERENCE)
    sent = headers_of(scope)
    call = dialect.read(await read_body(scope, receive, state.settings.gateway.max_body_bytes), sent)
    labels = labels_of(sent, call.said)
    routes = state.routes.current()
    target = resolve(call.model, caller, routes, state.settings.gateway.model_map)
    with state.heartbeat.hold(target.name):  # nothing may wait between reading the table and counting the request
        turn = Turn(call, dialect.name, labels, target, caller, state.recorder, request_id)
        headers = [(b"x-burnish-version", _shown(target.name))]
        if labels.session_id is not None:
            headers.append((b"x-burnish-session", _shown(labels.session_id)))
        if call.ignored:
            headers.append((b"x-burnish-ignored", _shown(", ".join(call.ignored))))
        async with ClientWatch(receive) as client:
            response = await state.engines.ask(routes, call.path, call.for_engine(target.engine_model), request_id)
            try:
                relay = _stream if call.is_stream else _whole
                await relay(dialect, turn, response, send, client, headers, request_id)
            finally:
                turn.abandon()
                response.close()


async def _whole(
    dialect: Dialect,
    turn: Turn,
    response: aiohttp.ClientResponse,
    send: Send,
    client: ClientWatch,
    headers: Headers,
    request_id: str,
) -> None:
    try:
        body = turn.pass_whole(await response.read())
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise _broken(error, request_id) from error
    client.settle()
    await send_bytes(send, 200, body, headers)


async def _stream(
    dialect: Dialect,
    turn: Turn,
    response: aiohttp.ClientResponse,
    send: Send,
    client: ClientWatch,
    headers: Headers,
    request_id: str,
) -> None:
    splitter = Splitter()
    has_begun = False
    try:
        async for piece in response.content.iter_any():
            if out := b"".join([turn.pass_on(event) for event in splitter.feed(piece)]):
                if not has_begun:
                    await send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS, *headers]})
                    has_begun = True
                await send({"type": "http.response.body", "body": out, "more_body": True})
        if not turn.is_done:
            raise EngineUnavailable("the engine ended its answer too early; please try again")
        last = b""
    except (BurnishError, aiohttp.ClientError, TimeoutError, OSError) as error:
        ours = error if isinstance(error, BurnishError) else _broken(error, request_id)
        if not has_begun:
            raise ours from error
        turn.abandon()  # recorded before the client learns that nothing more will come
        last = dialect.frame_of(ours, request_id)
    client.settle()
    await send({"type": "http.response.body", "body": last, "more_body": False})


def _shown(text: str) -> bytes:
    """Fit for a header: a session named in a body may hold any character, and the server refuses to send control characters."""
    return _CONTROL.sub(b"?", text.encode("latin-1", "replace"))


def _broken(error: Exception, request_id: str) -> EngineUnavailable:
    log.warning("engine went away in mid-answer", request_id=request_id, error=repr(error))
    return EngineUnavailable("the engine went away while it was answering; please try again")
