"""An engine's answers, typed: one chunk of a stream or one whole reply, of chat or text completions.

Only the fields that Burnish acts on are decoded. The others are skipped, and passed on as bytes if they are passed on.
A reply can be skimmed for what its client reads, which takes half the time, and read later for what was sampled.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

NOTHING = msgspec.Raw(b"")


class Function(msgspec.Struct, gc=False):
    """A tool call's name and arguments (JSON text). In a stream, pieces of them."""

    name: str | None = None
    arguments: str | None = None


class CallPiece(msgspec.Struct, gc=False):
    """One tool call or a piece of it. `index` is its place in the reply, absent in whole replies."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Piece(msgspec.Struct, gc=False):
    """`delta` of a chunk, `message` of a whole reply."""

    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CallPiece] | None = None


class Entry(msgspec.Struct, gc=False):
    """One sampled token's element of `logprobs.content`."""

    logprob: float | None = None


class Logprobs(msgspec.Struct, gc=False):
    """Log-probs of chat (`content`) or of text completions (`token_logprobs`)."""

    content: list[Entry] | None = None
    token_logprobs: list[float | None] | None = None


class Words(msgspec.Struct, gc=False):
    """The fields of `choices` that a client reads. A whole reply's `message` stays text, to be passed on unchanged."""

    index: int
    delta: Piece | None = None
    message: msgspec.Raw = NOTHING
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None

    @property
    def piece(self) -> Piece | None:
        """The delta, or the parsed message."""
        if self.delta is not None or not bytes(self.message):
            return self.delta
        return _piece_decoder.decode(self.message)


class Choice(Words, gc=False):
    """The whole choice, with what was sampled. The prompt's ids stay text (src/burnish/wire/prompt_ids.py)."""

    logprobs: Logprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: msgspec.Raw = NOTHING


class CachedTokens(msgspec.Struct, gc=False):
    """`usage.prompt_tokens_details`."""

    cached_tokens: int | None = None


class ReasoningTokens(msgspec.Struct, gc=False):
    """`usage.completion_tokens_details`."""

    reasoning_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    """Tokens counted by the engine."""

    prompt_tokens: int = 0
    total_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: CachedTokens | None = None
    completion_tokens_details: ReasoningTokens | None = None


class Answer(msgspec.Struct, gc=False):
    """One whole body, skimmed."""

    choices: Sequence[Words] = ()
    id: str = ""
    created: int = 0
    usage: Usage | None = None
    error: Any = None


class Chunk(Answer, gc=False):
    """One event's data, or one whole body, read."""

    choices: Sequence[Choice] = ()
    prompt_token_ids: msgspec.Raw = NOTHING


_decoder = msgspec.json.Decoder(Chunk)
_skimmer = msgspec.json.Decoder(Answer)
_piece_decoder: "msgspec.json.Decoder[Piece | None]" = msgspec.json.Decoder(Piece | None)


def read(data: bytes) -> Chunk:
    """The chunk in `data`. Raises msgspec.DecodeError if it is none."""
    return _decoder.decode(data)


def skim(data: bytes) -> Answer:
    """The answer in `data` without ids and log-probs. Raises msgspec.DecodeError if it is none."""
    return _skimmer.decode(data)
