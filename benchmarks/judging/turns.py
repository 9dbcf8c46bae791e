"""Turns for the benchmark to judge, in their own journal."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from sqlmodel import Session

from burnish.journal import Journal
from burnish.journal.blobs import store
from burnish.journal.tables import InteractionRow, NextStateRow
from burnish.journal.turns import ask_judge
from burnish.records import Message, NextStateKind, Sampling
from burnish.rewards import NEXT_STATE

SYSTEM = {
    "role": "system",
    "content": "You are a careful assistant of a small company. Answer in the user's own words. " * 12,
}


def journal_with(folder: Path, cases: Iterable[tuple[Sequence[Message], str, str]]) -> Journal:
    """A new journal with turns that wait for the judge: `t0`, `t1`, …

    Each of `turns` is (conversation, reply, the user's next message).
    """
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal.open(f"sqlite:///{folder}/journal.db")
    with journal.write() as session:
        for number, (conversation, reply, next_message) in enumerate(cases):
            session.add(turn(session, f"t{number}", conversation, reply))
            digests = [store(session, {"role": "user", "content": next_message})]
            session.add(
                NextStateRow(
                    interaction_id=f"t{number}",
                    kind=NextStateKind.USER_REPLY,
                    message_digests=digests,
                    created_at=float(number),
                )
            )
            ask_judge(session, f"t{number}", NEXT_STATE)
    return journal


def ordinary(n_turns: int) -> Iterable[tuple[Sequence[Message], str, str]]:
    """Typical turns of a production agent: a system prompt, some history, a reply, a user's message."""
    for n in range(n_turns):
        history = [
            {"role": "user", "content": f"Task {n // 4}, please."},
            {"role": "assistant", "content": f"Which one of {n}?"},
        ]
        yield (
            [SYSTEM, *history, {"role": "user", "content": f"Number {n}."}],
            f"Here is number {n}, done as asked.",
            "Thank you.",
        )


def turn(session: Session, name: str, conversation: Sequence[Message], reply: str) -> InteractionRow:
    """The row of one turn. Its messages are stored."""
    return InteractionRow(
        interaction_id=name,
        request_id=name,
        agent="agent",
        version=0,
        tenant="default",
        key_id="bench",
        session_id=f"s-{name}",
        link_rule="new",
        started_at=0.0,
        ended_at=0.0,
        sampling=asdict(Sampling()),
        message_digests=[store(session, message) for message in conversation],
        reply_digest=store(session, {"role": "assistant", "content": reply}),
        tail_hash=name,
        suffix_hash="",
        words_hash="",
        request_hash="",
        prompt_rest=b"",
        token_ids=b"",
        logprobs=b"",
    )
