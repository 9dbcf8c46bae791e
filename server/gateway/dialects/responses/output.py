"""A response's `output` as it grows. Pieces of the engine's reply go in, events come out, one item is open at a
time."""

from collections.abc import Mapping

from burnish.server.gateway.dialects.responses.item import (
    CALLS,
    COMPLETED,
    INCOMPLETE,
    Call,
    Event,
    Item,
    Message,
    Reasoning,
    Tree,
)
from burnish.server.gateway.dialects.responses.logprobs import spoken
from burnish.server.gateway.dialects.responses.tools import Kind
from burnish.wire.chunks import CallPiece, Piece


class Output:
    """The items of one response. `stem` is the common part of their ids."""

    def __init__(self, stem: str, kinds: Mapping[str, Kind], *, is_sealed: bool) -> None:
        self.items: list[Item] = []
        self._stem = stem
        self._kinds = kinds
        self._is_sealed = is_sealed
        self._open: Item | None = None
        self._calls: list[int] = []  # the engine's indices of the calls so far, the latest last
        self._unspoken: list[Tree] = []

    @property
    def trees(self) -> list[Tree]:
        return [item.tree() for item in self.items]

    def add(self, piece: Piece, logprobs: list[Tree]) -> list[Event]:
        """The events for one piece. `logprobs` are those of its tokens."""
        events: list[Event] = []
        if reasoning := piece.reasoning or piece.reasoning_content:
            events += self._think(reasoning)
        if piece.content:
            events += self._say(piece.content, spoken(piece.content, [*self._unspoken, *logprobs]))
        for position, call in enumerate(piece.tool_calls or ()):
            events += self._call_tool(position if call.index is None else call.index, call)
        if events:
            self._unspoken = []
        else:  # half a character, a mark around the reasoning, or the end
            self._unspoken += logprobs
        return events

    def finish(self, *, is_complete: bool) -> list[Event]:
        """The events for the end. An empty reply becomes an empty message, so that it can be sent back like any
        other."""
        events: list[Event] = []
        if not self.items and is_complete:
            events += self._say("", [])
        return [*events, *self._close(COMPLETED if is_complete else INCOMPLETE)]

    def _think(self, text: str) -> list[Event]:
        events: list[Event] = []
        if not isinstance(self._open, Reasoning):
            events += self._begin(Reasoning(self._stem, len(self.items), is_sealed=self._is_sealed))
        assert self._open is not None, "begun above"
        return [*events, *self._open.add(text)]

    def _say(self, text: str, logprobs: list[Tree]) -> list[Event]:
        if isinstance(self._open, Message):
            return self._open.say(text, logprobs)
        message = Message(self._stem, len(self.items))
        return [*self._begin(message), *message.say(text, logprobs)]

    def _call_tool(self, index: int, piece: CallPiece) -> list[Event]:
        """Engines send calls one after the other: a new index ends the call before it."""
        function = piece.function
        events: list[Event] = []
        if index not in self._calls:
            name = (function and function.name) or ""
            kind = CALLS[self._kinds.get(name, Kind.FUNCTION)]
            events += self._begin(kind(self._stem, len(self.items), piece.id, name))
            self._calls.append(index)
        if function is not None and function.arguments and index == self._calls[-1] and isinstance(self._open, Call):
            events += self._open.add(function.arguments)
        return events

    def _begin(self, item: Item) -> list[Event]:
        events = [*self._close(COMPLETED), *item.open()]
        self.items.append(item)
        self._open = item
        return events

    def _close(self, status: str) -> list[Event]:
        item, self._open = self._open, None
        return item.close(status) if item is not None else []
