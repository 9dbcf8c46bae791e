"""W3C Trace Context: the header `traceparent`, in which a client names the trace that its request belongs to.

A header that breaks the rules (https://www.w3.org/TR/trace-context/) counts as none.
"""

import re
from typing import NamedTuple

LENGTH = 55
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_FIRST = "00"
_SAMPLED = 1


class Remote(NamedTuple):
    """The client's span. `is_sampled`: the client records its trace."""

    trace_id: int
    span_id: int
    is_sampled: bool


def checked(text: str | None) -> str | None:
    """The first 55 characters of a header that keeps the rules, else None. A later version than 00 may be longer."""
    if text is None or _FORM.match(text) is None:
        return None
    if len(text) == LENGTH:
        return text
    return text[:LENGTH] if text[LENGTH] == "-" and not text.startswith(_FIRST) else None


def parse(text: str) -> Remote:
    """The client's span in what `checked` returned."""
    _, trace_id, span_id, flags = text.split("-")
    return Remote(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))
