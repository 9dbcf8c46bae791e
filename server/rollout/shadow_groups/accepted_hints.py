"""The wishes that a turn's group is graded on: its own hint, and accepted hints of its user about other turns.

A wish for a style lasts longer than the turn that caused it. So a reply that nobody complained about can be compared
with its group by what its user is known to want. Groups of a shared agent are graded on wishes that the quorum backs,
and on nothing else (burnish/journal/hint_quorum.py).
"""

from sqlalchemy import select
from sqlmodel import Session, col

from burnish.adapters.evidence.holdout import is_held_out
from burnish.config import Settings
from burnish.journal.evidence import evidence_of_all
from burnish.journal.hint_quorum import Quorum, quorum_of
from burnish.journal.tables import InteractionRow, JudgementRow
from burnish.journal.turns import of_same_voice
from burnish.records import Who, who_of
from burnish.rewards import ACCEPTED, compose

LOOKED_THROUGH = 4096
"""How many of the latest hints are read, so that a look does not cost more as the journal grows."""
OF_USER = 64
"""How many of a user's latest hints are read, because people repeat themselves."""


class Wishes:
    """Hints of users, or of keys without one. One look at the journal looks each user up once."""

    def __init__(self, session: Session, settings: Settings) -> None:
        self._session = session
        self._most = settings.groups.earlier_hints
        self._holdout = settings.holdout
        self._needed = settings.learner.hint_quorum
        self._known: dict[tuple[str, Who], list[str]] = {}
        self._quorums: dict[str, Quorum | None] = {}

    def of(self, row: InteractionRow, own: str | None) -> str:
        """The turn's own hint first, then its user's latest others, without repeats, one a line. Empty if there is
        none.
        """
        first = [_one_line(own)] if own else []
        others = [wish for wish in self._of_user(row) if wish not in first] if self._most else []
        return "\n".join(self._backed(row.agent, first + others)[: len(first) + self._most])

    def _backed(self, agent: str, wishes: list[str]) -> list[str]:
        if wishes and agent not in self._quorums:
            self._quorums[agent] = quorum_of(self._session, agent, self._needed)
        quorum = self._quorums.get(agent)
        if quorum is None:
            return wishes
        return list(dict.fromkeys(kept for wish in wishes if (kept := quorum.backed(wish)) is not None))

    def _of_user(self, row: InteractionRow) -> list[str]:
        """Different hints, the latest first. Deleted ones, those of held-out sessions, and those not for training do
        not count.
        """
        key = (row.agent, who_of(row.tenant, row.key_id, row.user))
        if key not in self._known:
            mine = (
                col(InteractionRow.agent) == row.agent,
                *of_same_voice(row),
                col(InteractionRow.may_train).is_(True),
            )
            accepted = select(col(JudgementRow.interaction_id), col(JudgementRow.created_at)).where(
                col(JudgementRow.hint_status) == ACCEPTED
            )
            latest = accepted.order_by(col(JudgementRow.created_at).desc()).limit(LOOKED_THROUGH).subquery()
            hinted = select(col(InteractionRow.interaction_id), col(InteractionRow.session_id)).join(
                latest, col(InteractionRow.interaction_id) == latest.c.interaction_id
            )
            wanted = hinted.where(*mine).order_by(latest.c.created_at.desc()).limit(OF_USER)
            found = self._session.connection().execute(wanted).all()
            names = list(
                dict.fromkeys(name for name, session_id in found if not is_held_out(session_id, self._holdout))
            )
            evidence = evidence_of_all(self._session, names)
            effective = [compose(evidence[name]).reward for name in names]
            self._known[key] = list(
                dict.fromkeys(_one_line(each.hint) for each in effective if each is not None and each.hint)
            )
        return self._known[key]


def _one_line(wish: str) -> str:
    return " ".join(wish.split())
