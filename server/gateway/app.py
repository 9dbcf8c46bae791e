"""The ASGI application: the hot path in raw ASGI, all other routes in a FastAPI application behind it.

Every request passes the Host and Origin guard, gets an `x-request-id`, and is admitted by the terms of its route
(server/gateway/access/admission.py). Inference, feedback, the model list and health are answered here. Other paths go
to `fallback` (admin, docs), which finds `request_id` and the `recorder` in its state. Every error leaves through
`server/gateway/http/error_envelope.py`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from burnish.config import Settings
from burnish.errors import NotFound, RequestError
from burnish.keys import Scope as KeyScope
from burnish.server.gateway import embeddings, exchange, routing
from burnish.server.gateway.access import host_guard, token_route
from burnish.server.gateway.access.admission import Terms, admit
from burnish.server.gateway.access.keyring import NOBODY, Caller
from burnish.server.gateway.access.need import FREE, Reach, declared_in, need
from burnish.server.gateway.call import CHAT, Dialect
from burnish.server.gateway.dialects import completions, messages, responses
from burnish.server.gateway.dialects.chat import Chat
from burnish.server.gateway.dialects.completions import Completions
from burnish.server.gateway.dialects.messages import Messages, count_tokens
from burnish.server.gateway.feedback import accept
from burnish.server.gateway.http import docs_page, error_envelope, pages
from burnish.server.gateway.http.asgi import (
    MAX_ARCHIVE_BYTES,
    MAX_BODY_BYTES,
    ClientGone,
    header,
    read_body,
    replayed,
    send_bytes,
    send_json,
)
from burnish.server.gateway.http.request_ids import RequestIds
from burnish.server.gateway.metrics import scrape
from burnish.server.gateway.metrics.counts import OTHER
from burnish.server.gateway.state import State
from burnish.server.gateway.warm_up import warm_up

Answer = Callable[[State, Caller, Scope, Receive, Send, str], Awaitable[None]]
MODEL_PATH = "/v1/models/"
CLIENT_LEFT = 499
"""The status in the metrics of a request whose client left before it was answered."""
MAX_ADMIN_BYTES = 2**20
"""Largest body of a request behind the hot path, except for an archive."""
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a path."""

    answer: Answer
    terms: Terms


class App:
    """The gateway's ASGI application. `state` exists from start-up to shutdown."""

    def __init__(self, settings: Settings, fallback: ASGIApp | None = None) -> None:
        self._settings = settings
        self._fallback = fallback
        self.state: State | None = None
        self._ids = RequestIds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self.state = State.open(self._settings)
        # a journal that does not answer must not keep a gateway from serving, so nobody waits for this
        first = asyncio.create_task(warm_up(self._fallback, self._settings)) if self._fallback is not None else None
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if first is not None:
            first.cancel()
        await self.state.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = self._ids.take()
        extra = [(b"x-request-id", request_id.encode()), *pages.ALWAYS]
        started, status_sent = time.perf_counter(), CLIENT_LEFT
        has_begun = has_ended = False

        def reply(message: Message) -> Awaitable[None]:
            nonlocal has_begun, has_ended, status_sent
            if message["type"] == "http.response.start":
                has_begun = True
                status_sent = message["status"]
                message["headers"] = [*message.get("headers", ()), *extra]
            else:
                has_ended = not message.get("more_body", False)
            return send(message)

        try:
            is_health = scope["path"] in _HEALTH  # an orchestrator asks by address, under any name
            origin = None if is_health else host_guard.check(scope, self._settings.gateway)
            if origin is not None:
                extra += host_guard.cors_headers(origin)
                if scope["method"] == "OPTIONS" and header(scope, b"access-control-request-method"):
                    return await send_bytes(reply, 200, b"{}", host_guard.preflight_headers())
            await self._dispatch(scope, receive, reply, request_id)
        except ClientGone:
            log.debug("client left", request_id=request_id)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            status, body, headers = _dialect(scope["path"]).reply_to(error, request_id)
            if status == 500:
                log.exception("request failed", request_id=request_id, path=scope["path"])
            if has_ended:  # the application behind has answered already and raised only for the log
                return
            # the server cuts the connection, so that the client does not take half an answer for a whole one
            if has_begun:
                raise
            await send_bytes(reply, status, body, headers)
        finally:
            if self.state is not None:
                self.state.counts.answered(_label(scope["path"]), status_sent, time.perf_counter() - started)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        state = self.state
        assert state is not None, "the server runs the lifespan before the first request"
        path = scope["path"]
        answers = ROUTES.get(path) or (MODEL if path.startswith(MODEL_PATH) else None)
        if answers is not None:
            route = answers.get(scope["method"])
            if route is not None:
                if not route.terms.is_counted:
                    return await route.answer(state, NOBODY, scope, receive, send, request_id)
                caller, admission = admit(route.terms, state, scope, receive)
                with admission:
                    return await route.answer(state, caller, scope, admission.receive, send, request_id)
            behind = _BEHIND.get(path, ()) if self._fallback is not None else ()
            if scope["method"] in behind:
                return await self._pass_on(state, scope, receive, send, request_id)
            allowed = ", ".join([*answers, *behind])
            status, body, headers = _dialect(path).reply_to(_wrong_method(scope, allowed), request_id)
            return await send_bytes(send, status, body, [*headers, (b"allow", allowed.encode())])
        if messages.owns(path):
            raise _nothing_at(path)
        await self._pass_on(state, scope, receive, send, request_id)

    async def _pass_on(self, state: State, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        terms = terms_behind(scope["path"])
        if self._fallback is None or terms is None or not _is_decided(self._fallback, scope):
            raise _nothing_at(scope["path"])
        scope.setdefault("state", {}).update(request_id=request_id, recorder=state.recorder)
        _, admission = admit(terms, state, scope, receive)
        with admission:
            if terms is not _ARCHIVE:  # FastAPI reads a body before it asks who sent it, and without a limit
                body = await read_body(admission.receive, terms.max_body) if terms.max_body else b""
                receive = replayed(body, receive)
            await self._fallback(scope, receive, pages.guarded(send) if terms is _PAGE else send)


def create_app(settings: Settings, fallback: ASGIApp | None = None) -> App:
    """The gateway for `settings`. `fallback` answers every path that is not the gateway's own."""
    return App(settings, fallback)


async def _list_models(
    state: State, caller: Caller, scope: Scope, receive: Receive, send: Send, request_id: str
) -> None:
    routes = state.routes.current()
    shown, has_more = routing.page(routing.names(caller, routes), scope["query_string"])
    data = [routing.entry(name, caller, routes, {}, state.settings.engine.max_model_len) for name in shown]
    ends = {"first_id": shown[0] if shown else None, "last_id": shown[-1] if shown else None}
    await send_json(send, 200, {"object": "list", "data": data, "has_more": has_more, **ends})


async def _show_model(
    state: State, caller: Caller, scope: Scope, receive: Receive, send: Send, request_id: str
) -> None:
    name, settings = scope["path"][len(MODEL_PATH) :], state.settings
    shown = routing.entry(
        name, caller, state.routes.current(), settings.gateway.model_map, settings.engine.max_model_len
    )
    await send_json(send, 200, shown)


async def _healthz(state: State, caller: Caller, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
    await send_json(send, 200, {"status": "ok"})


async def _readyz(state: State, caller: Caller, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
    is_ready = await state.engines.is_ready(state.routes.current())
    warnings = [] if is_ready else ["no engine answers"]
    if state.recorder.n_lost:
        warnings.append(f"{state.recorder.n_lost} records lost: the disk is full")
    tree = {"status": "ready" if is_ready else "not ready", "warnings": warnings}
    await send_json(send, 200 if is_ready else 503, tree)


def _label(path: str) -> str:
    """The path in the metrics: a route of the gateway's own, or a word for many paths."""
    if path in ROUTES:
        return path
    if path.startswith(MODEL_PATH):
        return MODEL_PATH + "{id}"
    return "/admin" if path.startswith("/admin/") else OTHER


def _nothing_at(path: str) -> NotFound:
    return NotFound(f"there is nothing at {path}; see docs/reference/http.md", code="unknown_path")


def _wrong_method(scope: Scope, allowed: str) -> RequestError:
    return RequestError(f"{scope['path']}: got {scope['method']}, expected {allowed}", code=error_envelope.WRONG_METHOD)


def _dialect(path: str) -> Dialect:
    """The dialect of the error envelope that a path's callers expect."""
    if messages.owns(path):
        path = messages.PATH
    return _DIALECTS.get(path, _DIALECTS[CHAT])


_DIALECTS: dict[str, Dialect] = {
    CHAT: Chat(),
    completions.PATH: Completions(),
    responses.PATH: responses.Responses(),
    messages.PATH: Messages(),
}
REPLIES = frozenset(_DIALECTS)
"""The paths that answer with replies."""
_TALK = Terms(need(Reach.MODEL, KeyScope.INFERENCE), MAX_BODY_BYTES)
_LOOK = Terms(need(Reach.MODEL, KeyScope.INFERENCE))
_SAY = need(Reach.TARGET, KeyScope.FEEDBACK, KeyScope.INFERENCE, KeyScope.OPERATOR)
_ALIVE = Terms(FREE, is_counted=False)
ROUTES: dict[str, dict[str, Route]] = {
    **{path: {"POST": Route(partial(exchange.answer, dialect), _TALK)} for path, dialect in _DIALECTS.items()},
    count_tokens.COUNT_PATH: {"POST": Route(count_tokens.answer, _TALK)},
    embeddings.PATH: {"POST": Route(embeddings.answer, _TALK)},
    accept.PATH: {"POST": Route(accept.answer, Terms(_SAY, accept.MAX_BODY, who=accept.voter))},
    accept.BATCH_PATH: {"POST": Route(accept.answer_batch, Terms(_SAY, accept.MAX_BATCH_BODY))},
    accept.TOKENS_PATH: {
        "POST": Route(accept.answer_token, Terms(need(Reach.TARGET, KeyScope.FEEDBACK), accept.MAX_WISH))
    },
    token_route.PATH: {
        "POST": Route(token_route.answer, Terms(need(Reach.USER, KeyScope.USERS), token_route.MAX_BODY))
    },
    "/v1/models": {"GET": Route(_list_models, Terms(need(Reach.LIST, KeyScope.INFERENCE)))},
    "/healthz": {"GET": Route(_healthz, _ALIVE)},
    "/readyz": {"GET": Route(_readyz, _ALIVE)},
}
MODEL = {"GET": Route(_show_model, _LOOK)}
_BEHIND = {accept.PATH: ("GET",)}  # methods of the gateway's own paths that need SQL
_ADMIN = Terms(need(Reach.LIST, KeyScope.VIEWER, KeyScope.OPERATOR), MAX_ADMIN_BYTES, is_reserved=True)
_ARCHIVE = Terms(need(Reach.AGENT, KeyScope.OPERATOR), MAX_ARCHIVE_BYTES, is_reserved=True)
_STORED = Terms(need(Reach.LIST, KeyScope.FEEDBACK, KeyScope.VIEWER, KeyScope.OPERATOR), MAX_ADMIN_BYTES)
_FIGURES = Terms(need(Reach.NOTHING, KeyScope.METRICS), is_reserved=True)
_PAGE = Terms(FREE)
PAGES = frozenset({*docs_page.PATHS, "/openapi.json"})
"""The paths behind the hot path that everybody may read."""


def _is_decided(behind: ASGIApp, scope: Scope) -> bool:
    """False if the route that would answer declares nothing of its own and is no page for everybody."""
    for route in getattr(behind, "routes", ()):
        if route.matches(scope)[0] is Match.FULL:
            return scope["path"] in PAGES or any(declared_in(route))
    return True  # nothing answers, or another method


def terms_behind(path: str) -> Terms | None:
    """The terms of a path behind the hot path, None if nothing can be there. Its own routes ask for more."""
    if path.startswith("/admin/"):
        return _ARCHIVE if path.endswith("/versions/import") else _ADMIN
    if path == accept.PATH or path.startswith(accept.PATH + "/"):
        return _STORED
    if path == scrape.PATH:
        return _FIGURES
    return _PAGE if path in PAGES else None


_HEALTH = frozenset({"/healthz", "/readyz"})
