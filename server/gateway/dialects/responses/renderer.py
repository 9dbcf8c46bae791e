"""The engine's answer as a Response: whole, or as the stream of events that leads to one.

Each event carries its sequence number. The items' events leave as their tokens come. The last event carries the
finished Response. It leaves when the engine's stream is over, because the usage comes after the reply.
"""

import time

import msgspec

from burnish.server.gateway.dialects.responses import logprobs
from burnish.server.gateway.dialects.responses.item import Event, Message, Tree
from burnish.server.gateway.dialects.responses.output import Output
from burnish.server.gateway.dialects.responses.response import Echo, end_of, usage_of
from burnish.server.gateway.http.sse import event_of
from burnish.wire.chunks import Answer, Chunk, Usage, Words

_GAVE_UP = {"code": "server_error", "message": "the engine gave this reply up; please try again"}


class ResponsesRenderer:
    """The renderer of one request."""

    def __init__(self, echo: Echo, output: Output, model: str, request_id: str, *, wants_logprobs: bool) -> None:
        self._echo = echo
        self._output = output
        self._model = model
        self._id = f"resp_{request_id}"
        self._wants_logprobs = wants_logprobs
        self._created_at = 0
        self._n_events = 0
        self._finish_reason: str | None = None
        self._usage: Usage | None = None

    def response_id(self, engine_id: str) -> str:
        return self._id

    def chunk(self, data: bytes, chunk: Chunk) -> bytes:
        events: list[Event] = []
        if not self._created_at:
            self._created_at = chunk.created or int(time.time())
            begun = {"response": self._response("in_progress")}
            events += [("response.created", begun), ("response.in_progress", begun)]
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices:
            if self._finish_reason is None:
                entries = logprobs.entries_of(data) if self._wants_logprobs else []
                events += self._add(choice, entries)
        return self._written(events)

    def end(self) -> bytes:
        status, _ = end_of(self._finish_reason)
        return self._written([(f"response.{status}", {"response": self._response(status)})])

    def whole(self, data: bytes, answer: Answer) -> bytes:
        self._created_at = answer.created or int(time.time())
        self._usage = answer.usage
        for choice in answer.choices[:1]:
            self._add(choice, [])
        if self._wants_logprobs:
            self._attach(logprobs.entries_of(data))
        return msgspec.json.encode(self._response(end_of(self._finish_reason)[0]))

    def failed(self, error: Tree) -> bytes:
        """The last events of a stream that broke off. OpenAI's clients raise at the first one's `error`; Codex reads
        the second.
        """
        error_body = {"code": error["code"], "message": error["message"], "param": error["param"], "error": error}
        self._output.finish(is_complete=False)
        response = self._response("failed", error={"code": "server_error", "message": error["message"]})
        return self._written([("error", error_body), ("response.failed", {"response": response})])

    def _add(self, choice: Words, entries: list[Tree]) -> list[Event]:
        events: list[Event] = []
        if choice.piece is not None:
            events += self._output.add(choice.piece, entries)
        if choice.finish_reason is not None:
            self._finish_reason = choice.finish_reason
            events += self._output.finish(is_complete=end_of(choice.finish_reason)[0] == "completed")
        return events

    def _attach(self, entries: list[Tree]) -> None:
        messages = [item for item in self._output.items if isinstance(item, Message)]
        if messages:
            messages[0].logprobs = logprobs.spoken(messages[0].text, entries)

    def _response(self, status: str, error: Tree | None = None) -> Tree:
        return self._echo.response(
            self._id,
            self._model,
            self._created_at,
            status,
            self._output.trees,
            incomplete=end_of(self._finish_reason)[1],
            error=error or (_GAVE_UP if status == "failed" else None),
            usage=usage_of(self._usage),
        )

    def _written(self, events: list[Event]) -> bytes:
        out = []
        for name, fields in events:
            out.append(event_of({"type": name, "sequence_number": self._n_events, **fields}, name))
            self._n_events += 1
        return b"".join(out)
