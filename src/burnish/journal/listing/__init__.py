"""Pages of records for people: turns, sessions, feedback, and figures by version. Read only.

No query reads the whole journal. A list is walked newest first along an index. One call looks at `LOOKS` rows at most
and returns the place where the next call goes on, so that a rare match costs many short calls and never a long one.
"""

from typing import NamedTuple

LOOKS = 2000
"""Most rows that one call looks at."""
TEXTS = 500
"""Most turns whose text one call reads."""


class Place(NamedTuple):
    """Where a list goes on: after the record with this time and id."""

    at: float
    name: str

    @classmethod
    def read(cls, text: str | None) -> "Place | None":
        """A place as `str` wrote it. Raises ValueError for anything else."""
        if not text:
            return None
        at, colon, name = text.partition(":")
        if not colon:
            raise ValueError(f"expected the `next` of an earlier answer, got {text[:80]!r}")
        return cls(float(at), name)

    def __str__(self) -> str:
        return f"{self.at!r}:{self.name}"
