"""Writes conversations into segments like a gateway, and reads back how the ingester linked them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from burnish.journal import Journal
from burnish.journal.tables import FeedbackRow, InteractionRow, JudgeJob, NextStateRow
from burnish.journal.turns import messages_of
from burnish.records import Interaction
from burnish.segments.frames import Record, encode
from burnish.server.ingest.ingester import Ingester
from tests.factories import assistant, interaction

FOREVER = 1e12


@dataclass(frozen=True)
class Linked:
    """The journal's links of one turn."""

    rule: str
    parent: str | None
    session: str
    skip_reason: str | None


class Pen:
    """`say` records one reply in the segment of `gateway`. Every record ends later than the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._now = 1000.0

    def say(
        self, messages: Sequence[dict[str, Any]], reply: str | dict[str, Any], *, gateway: str = "a", **changes: Any
    ) -> Interaction:
        self._now += 1.0
        times = {"started_at": self._now - 0.5, "ended_at": self._now}
        turn = interaction(list(messages), **times | changes)
        turn = replace(turn, reply=assistant(reply) if isinstance(reply, str) else reply)
        self.write(turn, gateway=gateway)
        return turn

    def write(self, *records: Record, gateway: str = "a") -> None:
        with (self.folder / f"{gateway}.seg").open("ab") as file:
            file.write(b"".join(map(encode, records)))


def follow(turn: Interaction, *came_back: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a request that continues `turn`."""
    return [dict(message) for message in [*turn.messages, turn.reply, *came_back]]


def ingest(journal: Journal, pen: Pen) -> int:
    return Ingester(journal, pen.folder, session_timeout=FOREVER).run_once()


def links(journal: Journal) -> dict[str, Linked]:
    with journal.read() as session:
        rows = session.query(InteractionRow).all()
        return {
            row.interaction_id: Linked(row.link_rule, row.parent_id, row.session_id, row.skip_reason) for row in rows
        }


def parents(journal: Journal) -> dict[str, str | None]:
    return {name: link.parent for name, link in links(journal).items()}


def next_state(journal: Journal, turn: Interaction) -> tuple[str, list[Any], str | None] | None:
    """Kind, messages and follower of the next state of `turn`."""
    with journal.read() as session:
        row = session.get(NextStateRow, turn.interaction_id)
        return row and (row.kind, messages_of(session, row.message_digests), row.follower_id)


def asked(journal: Journal) -> set[str]:
    """Subjects of all judge jobs."""
    with journal.read() as session:
        return {row.subject for row in session.query(JudgeJob).all()}


def feedback_targets(journal: Journal) -> dict[str, str | None]:
    with journal.read() as session:
        return {row.feedback_id: row.interaction_id for row in session.query(FeedbackRow).all()}
