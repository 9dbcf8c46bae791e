"""A request for a reply in any dialect. After guard and key it is pinned, asked, recorded and answered here.

Streams are relayed event by event. The answer's status is sent with the first event, so an engine that fails before it
still gives a 503. A later failure is one error event. If a client leaves, its engine request is cancelled, and the
tokens sampled so far are recorded as aborted.
"""

import re
import time
from typing import Any

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from burnish.adapters.registry.personal import HEADER, is_listed
from burnish.errors import BurnishError, EngineUnavailable, RequestError
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.call import CHAT, Call, Dialect
from burnish.server.gateway.engines.connection_pool import Response
from burnish.server.gateway.feedback import commands, remark
from burnish.server.gateway.feedback.commands import Command
from burnish.server.gateway.http.asgi import MAX_BODY_BYTES, headers_of, read_body, send_bytes
from burnish.server.gateway.http.disconnects import ClientWatch
from burnish.server.gateway.http.sse import Splitter
from burnish.server.gateway.labels import Labels, labels_of, with_consent
from burnish.server.gateway.recorder import UNRECORDED, Recorder, Redacting, Unrecorded
from burnish.server.gateway.routing import Target, remote, resolve, to_canary, to_personal_agent
from burnish.server.gateway.state import State
from burnish.server.gateway.turn import Turn
from burnish.serving_table import Routes

SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
log = structlog.get_logger(__name__)


async def answer(
    dialect: Dialect, state: State, caller: Caller, scope: Scope, receive: Receive, send: Send, request_id: str
) -> None:
    """One reply, streamed or whole."""
    started_at = time.time()
    sent = headers_of(scope)
    call = dialect.read(await read_body(receive, MAX_BODY_BYTES), sent)
    call.quoted_user = sent.get(HEADER) or call.quoted_user or None
    call.user = caller.user_of(call.quoted_user)
    labels = with_consent(labels_of(sent, call.said), caller, call, state.routes.current())
    exchange = Exchange(dialect, state, caller, call, labels, request_id, started_at)
    with state.limits.admit_named(caller, call.user):
        await exchange.run(receive, send)


class Exchange:
    """One running request."""

    def __init__(
        self,
        dialect: Dialect,
        state: State,
        caller: Caller,
        call: Call,
        labels: Labels,
        request_id: str,
        started_at: float,
    ) -> None:
        self._dialect = dialect
        self._state = state
        self._caller = caller
        self._call = call
        self._labels = labels
        self._request_id = request_id
        self._started_at = started_at
        self._clock = time.perf_counter()
        self._first_at: float | None = None

    async def run(self, receive: Receive, send: Send) -> None:
        """Pin the request to one version, ask for the reply, record it, answer the client."""
        state = self._state
        routes = state.routes.current()
        target = self._pin(routes)
        if (said := self._command(target)) is not None:
            return await self._answer_command(*said, target, send)
        # no await between reading the table and counting the request
        with state.heartbeat.hold(target.name), state.disconnects.watch(receive) as client:
            try:
                await self._answer(routes, target, send, client)
            except RequestError as error:  # nothing has been sent; the tools that we made strict may be at fault
                if self._call.strict_tools is None:
                    raise
                log.info("asking again without strict tools", request_id=self._request_id, reason=error.code)
                self._call.strict_tools = None
                await self._answer(routes, target, send, client)

    async def _answer(self, routes: Routes, target: Target, send: Send, client: ClientWatch) -> None:
        """Ask, record, reply."""
        response, turn = await self._ask(routes, target)
        try:
            await (self._stream if self._call.is_stream else self._whole)(turn, response, send, client)
        finally:
            turn.abandon()
            response.close()
            self._count(turn)

    def _count(self, turn: Turn) -> None:
        """Add the reply to the metrics. An answer that never began is none."""
        if turn.finish is None and self._first_at is None:
            return
        first = None if self._first_at is None else self._first_at - self._clock
        took = time.perf_counter() - self._clock
        self._state.counts.replied(turn.target.agent, turn.n_prompt, turn.n_output, turn.finish, first, took)

    def _command(self, target: Target) -> tuple[Command, list[dict[str, Any]]] | None:
        """The command that the request ends with, and the conversation up to the last reply.

        The commands of the history are taken out of the request, with their answers.
        """
        allowed, call = self._state.settings.gateway.commands, self._call
        if not allowed or call.path != CHAT or not is_listed(target.agent, allowed):
            return None
        found = commands.look(call.messages)
        if found is None:
            return None
        call.messages = call.body["messages"] = msgspec.Raw(msgspec.json.encode(found.messages))
        return None if found.last is None else (found.last, commands.up_to_the_last_reply(found.messages))

    async def _answer_command(
        self, command: Command, conversation: list[dict[str, Any]], target: Target, send: Send
    ) -> None:
        """Record what the user said about the last reply, and answer in the model's place."""
        call, recorder, text = self._call, self._recorder(target), remark.answer_to(command, self._caller)
        if not conversation:
            text = remark.NO_REPLY
        elif isinstance(recorder, Unrecorded):
            text = remark.UNRECORDED
        else:
            who = (self._labels, target, self._caller, self._request_id, self._dialect.name)
            n_before = self._state.recorder.n_recorded
            if not recorder.append(remark.record_of(command, conversation, call, *who)):
                text = remark.NOT_STORED
            await self._state.recorder.durable(n_before)
        renderer = call.render(call.model, self._request_id)
        body = remark.rendered(text, renderer, is_stream=call.is_stream, request_id=self._request_id)
        if not call.is_stream:
            return await send_bytes(send, 200, body)
        await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    def _pin(self, routes: Routes) -> Target:
        """The version that answers: the one asked for, the user's personal agent, or a canary."""
        call, caller, settings = self._call, self._caller, self._state.settings
        target = resolve(call.model, caller, routes, settings.gateway.model_map)
        target = to_personal_agent(target, routes, settings.personal, caller.tenant, call.user)
        return to_canary(target, routes, caller.key_id, self._labels.session_id, call.messages)

    async def _ask(self, routes: Routes, target: Target) -> tuple[Response, Turn]:
        """The answer, unread, and its recording: the engine's, or the remote model's if the settings allow it."""
        call, state = self._call, self._state
        begun: list[Turn] = []
        may_be_remote = bool(routes.remote_url) and call.path == CHAT and not target.is_base
        if not (may_be_remote and state.settings.remote.use == "always"):
            body = call.for_engine(target.engine_model, self._caller.tenant)
            try:
                response = await state.engines.ask(
                    routes, call.path, body, self._request_id, lambda: begun.append(self._record(target))
                )
                return response, begun[-1]
            except EngineUnavailable as error:
                if not may_be_remote:
                    raise
                log.warning("asking the remote model instead", request_id=self._request_id, reason=str(error))
        afar = remote(target, state.settings.remote.model)
        call.strict_tools = None  # only our engine gets them, so asking again would change nothing
        body = call.for_remote(afar.engine_model)
        return await state.engines.ask_remote(routes, call.path, body, self._request_id), self._record(afar)

    def _record(self, target: Target) -> Turn:
        """The recording of the reply that `target` gives."""
        call, recorder = self._call, self._recorder(target)
        return Turn(
            call, self._dialect.name, self._labels, target, self._caller, recorder, self._request_id, self._started_at
        )

    def _recorder(self, target: Target) -> Recorder | Redacting | Unrecorded:
        """Who takes the record: nobody if its client, key or user opted out."""
        recorder, redacts = self._state.recorder, self._state.settings.journal.redact
        if not self._labels.may_record:
            return UNRECORDED
        return Redacting(recorder) if redacts and is_listed(target.agent, redacts) else recorder

    def _headers(self, turn: Turn) -> list[tuple[bytes, bytes]]:
        call, session_id = self._call, self._labels.session_id
        headers = [(b"x-burnish-version", _header_safe(turn.target.name))]
        if session_id is not None:
            headers.append((b"x-burnish-session", _header_safe(session_id)))
        if call.ignored:
            headers.append((b"x-burnish-ignored", _header_safe(", ".join(call.ignored))))
        return headers

    async def _whole(self, turn: Turn, response: Response, send: Send, client: ClientWatch) -> None:
        recorder = self._state.recorder
        try:
            answer = await response.read()
            n_before = recorder.n_recorded
            body = turn.pass_whole(answer)
        except OSError as error:
            raise self._broken(error) from error
        await recorder.durable(n_before)
        client.settle()
        await send_bytes(send, 200, body, self._headers(turn))

    async def _stream(self, turn: Turn, response: Response, send: Send, client: ClientWatch) -> None:
        splitter, recorder = Splitter(), self._state.recorder
        has_begun = False
        client.begin()  # a client that leaves a stream, however short, has not read its end
        try:
            async for piece in response.pieces():
                n_before = recorder.n_recorded
                if out := b"".join([turn.pass_on(event) for event in splitter.feed(piece)]):
                    await recorder.durable(n_before)
                    if not has_begun:
                        head = [*SSE_HEADERS, *self._headers(turn)]
                        await send({"type": "http.response.start", "status": 200, "headers": head})
                        has_begun = True
                        self._first_at = time.perf_counter()
                    await send({"type": "http.response.body", "body": out, "more_body": True})
            if not turn.is_done:
                raise EngineUnavailable("the engine ended its answer too early; please try again")
            last = b""
        except (BurnishError, OSError) as error:
            ours = error if isinstance(error, BurnishError) else self._broken(error)
            if not has_begun:
                raise ours from error
            n_before = recorder.n_recorded
            turn.abandon()  # recorded before the client learns that nothing more will come
            await recorder.durable(n_before)
            last = self._dialect.frame_of(ours, self._request_id)
        client.settle()
        await send({"type": "http.response.body", "body": last, "more_body": False})

    def _broken(self, error: Exception) -> EngineUnavailable:
        log.warning("engine went away in mid-answer", request_id=self._request_id, error=repr(error))
        return EngineUnavailable("the engine went away while it was answering; please try again")


def _header_safe(text: str) -> bytes:
    """The text made fit for a header: control characters are replaced, because the server refuses to send them."""
    return _CONTROL.sub("?", text).encode("latin-1", "replace")
