"""The engine's answer for a Messages client: one Message, or events while the engine writes.

A stream is a sequence of blocks. A block begins when its first piece comes. It ends when a piece of another kind comes
or the reply ends. The stop reason waits for the engine's last chunk, which holds the usage. The turn is recorded by
then.
"""

import msgspec

from burnish.errors import EngineUnavailable
from burnish.server.gateway.dialects.messages import message
from burnish.server.gateway.dialects.messages.message import Tree
from burnish.server.gateway.dialects.messages.tool_calls import block_of
from burnish.server.gateway.http.sse import event_of
from burnish.wire.chunks import Answer, CallPiece, Choice, Chunk, Piece
from burnish.wire.prompt_ids import n_ids_in


class MessageRenderer:
    """One answer on its way to the client. Without `shows_thinking` the reasoning is recorded and withheld."""

    def __init__(self, model: str, request_id: str, *, shows_thinking: bool) -> None:
        self._model = model
        self._id = f"msg_{request_id}"
        self._shows_thinking = shows_thinking
        self._n_blocks = 0
        self._open: str | None = None  # kind of the block that is being written
        self._calls: dict[int, int] = {}  # the engine's index of a tool call → its block
        self._has_begun = False
        self._n_prompt = self._n_sampled = 0
        self._usage: Tree | None = None
        self._stop: Tree | None = None

    def response_id(self, engine_id: str) -> str:
        return self._id

    def whole(self, data: bytes, answer: Answer) -> bytes:
        choice = message.choice_of(answer)
        piece = choice.piece or Piece()
        content = message.blocks_of(piece, shows_thinking=self._shows_thinking)
        usage = message.usage_of(answer.usage) if answer.usage else message.counts(0, 0)
        stop = message.stop_of(choice, has_calls=bool(piece.tool_calls))
        return msgspec.json.encode(message.message(self._id, self._model, content, usage) | stop)

    def chunk(self, data: bytes, chunk: Chunk) -> bytes:
        events = []
        if not self._has_begun:
            self._has_begun = True
            self._n_prompt = n_ids_in(bytes(chunk.prompt_token_ids))
            start = message.message(self._id, self._model, [], message.counts(self._n_prompt, 0))
            events.append(event_of({"type": "message_start", "message": start}, "message_start"))
        for choice in chunk.choices:
            self._write(choice, events)
        if chunk.usage is not None:
            self._usage = message.usage_of(chunk.usage)
        return b"".join(events)

    def end(self) -> bytes:
        if self._stop is None:
            raise EngineUnavailable("the engine ended its answer too early; please try again")
        usage = self._usage or message.counts(self._n_prompt, self._n_sampled)
        delta = {"type": "message_delta", "delta": self._stop, "usage": usage}
        return event_of(delta, "message_delta") + event_of({"type": "message_stop"}, "message_stop")

    def _write(self, choice: Choice, events: list[bytes]) -> None:
        if self._stop is not None:  # anything after the end is not recorded, so it is not shown
            return
        self._n_sampled += len(choice.token_ids or ())
        piece = choice.piece or Piece()
        if self._shows_thinking and (thought := message.reasoning_of(piece)):
            if self._open != "thinking":
                self._begin({"type": "thinking", "thinking": "", "signature": ""}, events)
            self._add({"type": "thinking_delta", "thinking": thought}, self._n_blocks - 1, events)
        if piece.content:
            if self._open != "text":
                self._begin({"type": "text", "text": ""}, events)
            self._add({"type": "text_delta", "text": piece.content}, self._n_blocks - 1, events)
        for position, call in enumerate(piece.tool_calls or ()):
            self._write_call(position if call.index is None else call.index, call, events)
        if choice.finish_reason is not None:
            self._stop = message.stop_of(choice, has_calls=bool(self._calls))
            self._finish(events)

    def _write_call(self, index: int, call: CallPiece, events: list[bytes]) -> None:
        """Arguments pass as they come, like Anthropic's fine-grained streaming: a client sees what the model wrote."""
        block = self._calls.get(index)
        if block is None:
            self._begin(block_of(call) | {"input": {}}, events)
            block = self._calls[index] = self._n_blocks - 1
        arguments = call.function and call.function.arguments
        if arguments:
            self._add({"type": "input_json_delta", "partial_json": arguments}, block, events)

    def _begin(self, block: Tree, events: list[bytes]) -> None:
        self._finish(events)
        self._open = block["type"]
        event = {"type": "content_block_start", "index": self._n_blocks, "content_block": block}
        events.append(event_of(event, "content_block_start"))
        self._n_blocks += 1

    def _add(self, delta: Tree, block: int, events: list[bytes]) -> None:
        event = {"type": "content_block_delta", "index": block, "delta": delta}
        events.append(event_of(event, "content_block_delta"))

    def _finish(self, events: list[bytes]) -> None:
        """End the current block, if there is one. A thinking block gets an empty signature, because clients wait for
        one.
        """
        if self._open is None:
            return
        at = self._n_blocks - 1
        if self._open == "thinking":
            self._add({"type": "signature_delta", "signature": ""}, at, events)
        events.append(event_of({"type": "content_block_stop", "index": at}, "content_block_stop"))
        self._open = None
