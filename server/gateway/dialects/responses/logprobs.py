"""The log-probs of a message's tokens in the shape of Responses, for clients that ask for them."""

from itertools import accumulate
from typing import Any

import msgspec

Tree = dict[str, Any]


class _Word(msgspec.Struct, gc=False):
    token: str
    logprob: float | None = None
    bytes: list[int] | None = None
    top_logprobs: "list[_Word] | None" = None

    @property
    def tree(self) -> Tree:
        spelled = list(self.token.encode()) if self.bytes is None else self.bytes
        return {"token": self.token, "logprob": self.logprob, "bytes": spelled}


class _Logprobs(msgspec.Struct, gc=False):
    content: list[_Word] | None = None


class _Choice(msgspec.Struct, gc=False):
    logprobs: _Logprobs | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] = []


def entries_of(data: bytes) -> list[Tree]:
    """Every token of a chunk or of a whole reply. A token without a log-prob is left out; none is invented."""
    choices = _decoder.decode(data).choices
    logprobs = choices[0].logprobs if choices else None
    words = (logprobs and logprobs.content) or ()
    return [
        word.tree | {"top_logprobs": [other.tree for other in word.top_logprobs or () if other.logprob is not None]}
        for word in words
        if word.logprob is not None
    ]


def spoken(text: str, entries: list[Tree]) -> list[Tree]:
    """The entries that spell `text`, without the tokens of marks, reasoning, calls and the end around it."""
    spelled = text.encode()
    pieces = [bytes(entry["bytes"]) for entry in entries]
    joined, ends = b"".join(pieces), accumulate(map(len, pieces))
    start = joined.rfind(spelled)
    if start < 0:  # replacement characters spell half characters; all tokens are better than none
        return entries
    return [entry for entry, end in zip(entries, ends, strict=True) if start < end <= start + len(spelled)]


_decoder = msgspec.json.Decoder(_Chunk)
