"""A user's command becomes feedback on the reply that its conversation ends with, and on no other."""

from dataclasses import replace
from typing import Any

from pen import Pen, asked, follow, ingest, links, next_state

from burnish.journal import Journal
from burnish.journal.tables import AuditRow, FeedbackRow, InteractionRow
from burnish.records import Interaction
from tests.factories import interaction, user

HELLO = [user("hello there")]


def say(pen: Pen, messages: list[Any], rating: float | None, comment: str | None = None, **changes: Any) -> Interaction:
    pen._now += 1.0
    remark = {"prefix": "key:", "source": "user", "rating": rating, "comment": comment}
    times = {"started_at": pen._now, "ended_at": pen._now}
    name = f"remark-{pen._now}"
    turn = interaction(messages, interaction_id=name, request_id=name, **times | changes)
    turn = replace(turn, reply={}, remark=remark, may_train=False)
    pen.write(turn)
    return turn


def ratings(journal: Journal) -> dict[str | None, tuple[float | None, str | None, bool]]:
    with journal.read() as session:
        rows = session.query(FeedbackRow).all()
        return {row.interaction_id: (row.rating, row.comment, row.is_deleted) for row in rows}


def is_ready(journal: Journal, name: str) -> bool:
    with journal.read() as session:
        row = session.get(InteractionRow, name)
        assert row is not None
        return row.is_ready


def test_the_last_reply_is_rated_and_no_turn_is_filed(any_journal: Journal, pen: Pen) -> None:
    first = pen.say(HELLO, "hi", interaction_id="one")
    second = pen.say(follow(first, user("go on")), "so it goes", interaction_id="two")
    say(pen, follow(second), -1.0, "too short")
    third = pen.say(follow(second, user("longer")), "a long reply", interaction_id="three")
    ingest(any_journal, pen)
    assert ratings(any_journal) == {"two": (-1.0, "too short", False)}
    assert links(any_journal).keys() == {"one", "two", "three"}
    assert links(any_journal)["three"].parent == "two"
    came = next_state(any_journal, second)
    assert came is not None and came[2] == third.interaction_id
    assert any("two" in subject for subject in asked(any_journal))  # its words become a hint


def test_the_last_command_counts_and_one_is_taken_back(journal: Journal, pen: Pen) -> None:
    first = pen.say(HELLO, "hi", interaction_id="one")
    say(pen, follow(first), 1.0)
    say(pen, follow(first), -1.0)
    ingest(journal, pen)
    assert ratings(journal) == {"one": (-1.0, None, False)}
    assert is_ready(journal, "one")
    say(pen, follow(first), None)
    ingest(journal, pen)
    assert ratings(journal)["one"][2] is True
    assert not is_ready(journal, "one")
    with journal.read() as session:
        (told,) = session.query(AuditRow).all()
        assert (told.actor, told.action, told.object) == (first.key_id, "delete-feedback", "one")


def test_a_reply_is_found_although_its_history_was_changed(journal: Journal, pen: Pen) -> None:
    words = "a reply that is long enough to be known by its own words alone"
    first = pen.say([{"role": "system", "content": "it is noon"}, *HELLO], words, interaction_id="one")
    later = [{"role": "system", "content": "it is one o'clock"}, *follow(first)[1:]]
    say(pen, later, 1.0)
    ingest(journal, pen)
    assert ratings(journal) == {"one": (1.0, None, False)}


def test_an_older_reply_never_gets_the_rating_of_an_unknown_one(journal: Journal, pen: Pen) -> None:
    first = pen.say(HELLO, "hi", interaction_id="one")
    say(pen, [*follow(first, user("go on")), {"role": "assistant", "content": "never recorded"}], -1.0)
    ingest(journal, pen)
    assert ratings(journal) == {None: (-1.0, None, False)}


def test_a_remark_between_two_turns_of_a_batch_changes_no_link(journal: Journal, pen: Pen) -> None:
    turn = pen.say(HELLO, "hi", interaction_id="t0")
    for number in range(1, 8):
        say(pen, follow(turn), 1.0, f"number {number}")
        turn = pen.say(follow(turn, user(f"go on {number}")), f"reply {number}", interaction_id=f"t{number}")
    ingest(journal, pen)
    assert {name: link.parent for name, link in links(journal).items()} == {
        f"t{number}": f"t{number - 1}" if number else None for number in range(8)
    }
    assert len(ratings(journal)) == 7 and ratings(journal)["t6"][1] == "number 7"
