"""A request for a reply, in any dialect: guard and key are passed; from here it is pinned, asked, relayed and recorded.

Streams are relayed event by event as the engine emits them. The answer's status is sent with the first event, so that an
engine that fails before it still gets a 503; a failure after it is one error event. A client that leaves takes its engine
request with it, and what had been sampled is recorded as aborted.
"""

import re
import time

import structlog
from starlette.types import Receive, Scope, Send

from burnish.errors import BurnishError, EngineUnavailable
from burnish.keys import Scope as KeyScope
from burnish.routes import Routes
from server.auth import Caller
from server.call import CHAT, Call, Dialect
from server.identity import Labels, labels_of
from server.models import Target, remote, resolve
from server.pool import Response
from server.sse import Splitter
from server.state import State
from server.turn import Turn
from server.wire import ClientWatch, headers_of, read_body, send_bytes

SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
Headers = list[tuple[bytes, bytes]]
log = structlog.get_logger(__name__)


async def answer(dialect: Dialect, state: State, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
    """One reply, streamed or whole."""
    caller = state.keyring.require(scope, KeyScope.INFERENCE)
    with state.limits.admit(caller):
        await _answer(dialect, state, caller, scope, receive, send, request_id)


async def _answer(
    dialect: Dialect, state: State, caller: Caller, scope: Scope, receive: Receive, send: Send, request_id: str
) -> None:
    started_at = time.time()
    sent = headers_of(scope)
    call = dialect.read(await read_body(scope, receive, state.settings.gateway.max_body_bytes), sent)
    labels = labels_of(sent, call.said)
    routes = state.routes.current()
    target = resolve(call.model, caller, routes, state.settings.gateway.model_map)
    may_be_remote = bool(routes.remote_url) and call.path == CHAT and not target.is_base
    if may_be_remote and state.settings.remote.use == "always":
        target = remote(target, state.settings.remote.model)
    with state.heartbeat.hold(target.name):  # nothing may wait between reading the table and counting the request
        async with ClientWatch(receive) as client:
            target, response = await _ask(state, routes, target, call, request_id, may_be_remote)
            turn = Turn(call, dialect.name, labels, target, caller, state.recorder, request_id, started_at)
            try:
                relay = _stream if call.is_stream else _whole
                await relay(dialect, turn, response, send, client, _headers(target, labels, call), request_id)
            finally:
                turn.abandon()
                response.close()


async def _ask(
    state: State, routes: Routes, target: Target, call: Call, request_id: str, may_be_remote: bool
) -> tuple[Target, Response]:
    """Who answers, and the answer, unread: the engine, else (where that is set) the remote model in its place."""
    if target.upstream is None:
        try:
            body = call.for_engine(target.engine_model)
            return target, await state.engines.ask(routes, call.path, body, request_id)
        except EngineUnavailable as error:
            if not may_be_remote:
                raise
            log.warning("asking the remote model instead", request_id=request_id, reason=str(error))
            target = remote(target, state.settings.remote.model)
    body = call.for_remote(target.engine_model)
    return target, await state.engines.ask_remote(routes, call.path, body, request_id)


def _headers(target: Target, labels: Labels, call: Call) -> Headers:
    headers = [(b"x-burnish-version", _header_safe(target.name))]
    if labels.session_id is not None:
        headers.append((b"x-burnish-session", _header_safe(labels.session_id)))
    if call.ignored:
        headers.append((b"x-burnish-ignored", _header_safe(", ".join(call.ignored))))
    return headers


def _header_safe(text: str) -> bytes:
    """Fit for a header: a session named in a body may hold any character, and the server refuses to send control characters."""
    return _CONTROL.sub("?", text).encode("latin-1", "replace")


async def _whole(
    dialect: Dialect,
    turn: Turn,
    response: Response,
    send: Send,
    client: ClientWatch,
    headers: Headers,
    request_id: str,
) -> None:
    try:
        body = turn.pass_whole(await response.read())
    except OSError as error:
        raise _broken(error, request_id) from error
    client.settle()
    await send_bytes(send, 200, body, headers)


async def _stream(
    dialect: Dialect,
    turn: Turn,
    response: Response,
    send: Send,
    client: ClientWatch,
    headers: Headers,
    request_id: str,
) -> None:
    splitter = Splitter()
    has_begun = False
    try:
        async for piece in response.pieces():
            if out := b"".join([turn.pass_on(event) for event in splitter.feed(piece)]):
                if not has_begun:
                    await send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS, *headers]})
                    has_begun = True
                await send({"type": "http.response.body", "body": out, "more_body": True})
        if not turn.is_done:
            raise EngineUnavailable("the engine ended its answer too early; please try again")
        last = b""
    except (BurnishError, OSError) as error:
        ours = error if isinstance(error, BurnishError) else _broken(error, request_id)
        if not has_begun:
            raise ours from error
        turn.abandon()  # recorded before the client learns that nothing more will come
        last = dialect.frame_of(ours, request_id)
    client.settle()
    await send({"type": "http.response.body", "body": last, "more_body": False})


def _broken(error: Exception, request_id: str) -> EngineUnavailable:
    log.warning("engine went away in mid-answer", request_id=request_id, error=repr(error))
    return EngineUnavailable("the engine went away while it was answering; please try again")
