"""Recent messages: how a caller's conversations began, what their users said last, and which calls stood alone.

A harness that asks for a title or a commit message on the side quotes one of these (server/ingest/turn_kind.py).
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import text
from sqlmodel import Session

from burnish.journal.blobs import N_BYTES, PART
from burnish.messages import text_of
from burnish.records import Interaction
from burnish.server.ingest.turn_kind import Kind, UserWords

RECENT = 600.0
"""Seconds back in which a side call is recognised."""
N_REMEMBERED = 512
N_LONE = 20
N_CALLERS = 10_000
N_LOADED = 50_000
"""Conversations, and calls, that are read from the journal after a start, the latest first."""
MAX_LENGTH = 300
MAX_LOOKED_THROUGH = 2**18
"""Bytes of earlier calls that are read again for one record, as their prompts' tokens take them (four each)."""


@dataclass(slots=True)
class _Caller:
    """What one caller said, with its time, and the calls without tools and history, with theirs and their size."""

    words: "OrderedDict[str, tuple[UserWords, float]]" = field(default_factory=OrderedDict)
    lone: "deque[tuple[str, float, int]]" = field(default_factory=lambda: deque(maxlen=N_LONE))


class Recent:
    """The messages of each caller (tenant and key), read from SQL once and kept up to date from then on."""

    def __init__(self) -> None:
        self._by: OrderedDict[tuple[str, str], _Caller] | None = None

    def forget(self) -> None:
        """Call after a rollback."""
        self._by = None

    def said(self, session: Session, turn: Interaction) -> Sequence[UserWords]:
        """The messages of the caller's recent conversations."""
        horizon = turn.started_at - RECENT
        return [said for said, at in self._of(session, turn).words.values() if at > horizon]

    def remember(self, session: Session, turn: Interaction, session_id: str, opening: str, head: str | None) -> None:
        """Note how a conversation began and what its user said last."""
        words = self._of(session, turn).words
        words.setdefault(session_id, (UserWords.of(opening, head), turn.started_at))
        last = next((m for m in reversed(turn.messages) if m.get("role") == "user"), None)
        if last is not None:
            words[f"{session_id} last"] = (UserWords.of(text_of(last)[:MAX_LENGTH], head), turn.ended_at)
        while len(words) > N_REMEMBERED:
            words.popitem(last=False)

    def lone(self, session: Session, turn: Interaction) -> list[str]:
        """The caller's latest calls that stood alone, latest first, up to `MAX_LOOKED_THROUGH` bytes together."""
        horizon = turn.started_at - RECENT
        names, left = [], MAX_LOOKED_THROUGH
        for name, at, size in reversed(self._of(session, turn).lone):
            if at > horizon and size <= left:
                names.append(name)
                left -= size
        return names

    def remember_lone(self, session: Session, turn: Interaction) -> None:
        """Note a call without tools and history."""
        self._of(session, turn).lone.append((turn.interaction_id, turn.ended_at, N_BYTES * len(turn.prompt_ids)))

    def _of(self, session: Session, turn: Interaction) -> _Caller:
        if self._by is None:
            self._by = _loaded(session, turn.started_at - RECENT)
        who = (turn.tenant, turn.key_id)
        if who not in self._by:
            self._by[who] = _Caller()
            if len(self._by) > N_CALLERS:
                self._by.popitem(last=False)
        self._by.move_to_end(who)
        return self._by[who]


def _loaded(session: Session, since: float) -> OrderedDict[tuple[str, str], _Caller]:
    found: OrderedDict[tuple[str, str], _Caller] = OrderedDict()
    given = {"since": since, "most": N_LOADED}
    for tenant, key_id, name, opening, head, at in reversed(session.connection().execute(_OPENINGS, given).all()):
        words = found.setdefault((tenant, key_id), _Caller()).words
        words[name] = (UserWords.of(opening, head), at)
        if len(words) > N_REMEMBERED:
            words.popitem(last=False)
    for tenant, key_id, name, at, size in reversed(session.connection().execute(_LONE, given).all()):
        found.setdefault((tenant, key_id), _Caller()).lone.append((name, at, size or 0))
    return found


_OPENINGS = text(
    "SELECT tenant, key_id, session_id, opening, head, started_at FROM session WHERE last_at > :since "
    "ORDER BY last_at DESC LIMIT :most"
)
_LONE = text(
    "SELECT tenant, key_id, interaction_id, ended_at, "
    f"json_array_length(prompt_parts) * {PART * N_BYTES} + length(prompt_rest) FROM interaction "
    f"WHERE ended_at > :since AND kind = '{Kind.MAIN}' AND turn_type IS NULL AND tools_digest IS NULL "
    "AND COALESCE(parent_id, '') = '' "  # not IS NULL: SQLite would read every turn without a parent, by their index
    "ORDER BY ended_at DESC LIMIT :most"
)
