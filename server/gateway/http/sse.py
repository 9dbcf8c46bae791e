"""Server-sent events: pieces of any size become whole events, in order, each once."""

import msgspec

DONE = b"[DONE]"
_PREFIX = b"data:"


class Splitter:
    """Collects pieces of a stream and gives back the complete events in them, without their blank line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        *events, self._rest = (self._rest + piece).split(b"\n\n")
        return events


def data_of(event: bytes) -> bytes | None:
    """The data of a one-line event as vLLM writes them. None for comments."""
    event = event.strip()
    return event[len(_PREFIX) :].strip() if event.startswith(_PREFIX) else None


def event_of(tree: object, name: str = "") -> bytes:
    """One event that carries `tree`, with an `event:` line if it has a name."""
    prefix = b"event: %s\n" % name.encode() if name else b""
    return b"%sdata: %s\n\n" % (prefix, msgspec.json.encode(tree))
