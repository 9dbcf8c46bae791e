"""Turns put into a journal without an ingester, in any state that a test needs."""

from typing import Any

from burnish.journal import Journal
from burnish.journal.blobs import Parted, store, store_parts
from burnish.journal.tables import FeedbackRow, InteractionRow, NextStateRow
from burnish.journal.turns import to_bytes
from burnish.records import Interaction, NextStateKind
from tests.factories import feedback, user


def add_turn(journal: Journal, turn: Interaction, **state: Any) -> str:
    """One recorded reply in a session of its own. `state` sets its other columns."""
    from dataclasses import asdict

    with journal.write() as session:
        fields: dict[str, Any] = {
            "session_id": f"s-{turn.request_id}",
            "link_rule": "new",
            "tail_hash": turn.interaction_id,
            "tools_digest": store(session, list(turn.tools)) if turn.tools else None,
            "sampling": asdict(turn.sampling),
            "message_digests": [store(session, message) for message in turn.messages],
            "reply_digest": store(session, turn.reply),
        }
        for name in ("interaction_id", "request_id", "agent", "version", "tenant", "key_id", "turn_type"):
            fields[name] = getattr(turn, name)
        for name in ("user", "quoted_user"):
            fields[name] = getattr(turn, name)
        for name in ("started_at", "ended_at", "finish_reason", "choice", "n_choices", "may_train", "is_aborted"):
            fields[name] = getattr(turn, name)
        for name in ("token_ids", "logprobs"):
            fields[name] = to_bytes(getattr(turn, name))
        prompt = Parted.of(turn.prompt_ids)
        store_parts(session, prompt.parts)
        fields |= {"prompt_parts": list(prompt.digests), "prompt_rest": prompt.rest}
        session.add(InteractionRow(**{**fields, "quarantine": turn.quarantine, **state}))
    return turn.interaction_id


def add_next_state(journal: Journal, name: str, kind: NextStateKind, *messages: dict[str, Any]) -> None:
    """The next state of the reply `name`."""
    with journal.write() as session:
        digests = [store(session, message) for message in messages or (user("and then?"),)]
        session.add(NextStateRow(interaction_id=name, kind=kind, message_digests=digests, created_at=5.0))


def add_feedback(journal: Journal, name: str, rating: float | None, *, attached: bool = True, **changes: Any) -> None:
    """Feedback on the reply `name`."""
    said = feedback(name, rating, **changes)
    with journal.write() as session:
        row = {field: getattr(said, field) for field in said.__dataclass_fields__}
        session.add(FeedbackRow(**row, interaction_id=name if attached else None))
