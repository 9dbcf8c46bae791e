"""Shadow groups in the journal: begun once, whole or absent, ended with a reason, and deleted with their turn."""

from array import array

from sqlalchemy import text

from burnish.adapters.registry import auto_rollback, lifecycle
from burnish.journal import Journal, jobs, shadows
from burnish.journal.shadows import Drawn
from burnish.journal.tables import InteractionRow, RubricJob, ShadowGroupRow, ShadowJob, ShadowRow
from burnish.journal.training_rows import Format, rows
from burnish.journal.turns import from_bytes
from tests.factories import interaction, user
from tests.turns import add_feedback, add_turn

DRAWN = [
    Drawn({"role": "assistant", "content": said}, "stop", array("i", [7, n, 2]), array("f", [-0.5, -0.25 * n, -0.125]))
    for n, said in enumerate(("one", "two", "three"), 1)
]


def begun(journal: Journal, name: str = "t1") -> str:
    add_turn(journal, interaction([user("say it")], interaction_id=name))
    with journal.write() as session:
        assert shadows.begin(session, session.get_one(InteractionRow, name), 4, "Use bold.", "j-1")
    return name


def group(journal: Journal, name: str = "t1") -> ShadowGroupRow:
    with journal.read() as session:
        return session.get_one(ShadowGroupRow, name)


def test_a_turn_has_one_group_and_one_job(any_journal: Journal) -> None:
    name = begun(any_journal)
    with any_journal.write() as session:
        assert not shadows.begin(session, session.get_one(InteractionRow, name), 8, "", None)
    with any_journal.read() as session:
        assert jobs.counts(session, ShadowJob) == {"queued": 1}
    found = group(any_journal)
    assert (found.state, found.n_members, found.wish, found.record_id) == ("drawing", 4, "Use bold.", "j-1")


def test_tokens_come_back_bit_for_bit_and_scores_in_their_order(any_journal: Journal) -> None:
    name = begun(any_journal)
    with any_journal.write() as session:
        assert shadows.file(session, name, DRAWN)
    with any_journal.write() as session:
        assert not shadows.file(session, name, DRAWN)  # a second drawer comes too late
        assert jobs.counts(session, RubricJob) == {"queued": 1}
        assert shadows.score(session, name, [0.5, 1.0, 0.0, 0.25], "judge/abc", [[5, 10, 0, 2], None, [5, 10, 0, 3]])
        assert not shadows.score(session, name, [1.0, 1.0, 1.0, 1.0], "judge/abc", [])
    with any_journal.read() as session:
        found = shadows.members_of(session, name)
        assert [list(from_bytes("i", row.token_ids)) for row in found] == [list(each.token_ids) for each in DRAWN]
        assert [list(from_bytes("f", row.logprobs)) for row in found] == [list(each.logprobs) for each in DRAWN]
        assert [row.score for row in found] == [1.0, 0.0, 0.25]
        told = shadows.tell(session, name)
    assert told is not None and told["score"] == 0.5 and told["votes"] == [[5, 10, 0, 2], None, [5, 10, 0, 3]]
    assert [member["reply"]["content"] for member in told["shadows"]] == ["one", "two", "three"]
    assert told["n_tokens"] == 9


def test_what_is_dropped_is_counted_by_reason_and_stays_dropped(any_journal: Journal) -> None:
    for name, reason in (("t1", "cut off: member 2"), ("t2", "cut off: member 1"), ("t3", "the judge abstained")):
        begun(any_journal, name)
        with any_journal.write() as session:
            shadows.charge(session, name, 10)
            assert shadows.drop(session, name, reason)
    with any_journal.write() as session:
        assert not shadows.drop(session, "t1", "something else")
        assert not shadows.file(session, "t1", DRAWN)
        told = shadows.totals(session, "agent")
    assert told == {
        "groups": {"dropped": 3},
        "dropped": {"cut off": 2, "the judge abstained": 1},
        "tokens": 30,
        "judge_votes": 0,
    }
    with any_journal.read() as session:
        assert shadows.tokens_since(session, 0.0) == 30
        assert shadows.tokens_since(session, 1e12) == 0


def test_a_deleted_turn_takes_its_group_and_its_shadows_with_it(any_journal: Journal) -> None:
    name = begun(any_journal)
    with any_journal.write() as session:
        shadows.file(session, name, DRAWN)
    with any_journal.write() as session:
        session.connection().execute(text("DELETE FROM interaction WHERE interaction_id = :name"), {"name": name})
    with any_journal.write() as session:
        assert session.query(ShadowGroupRow).count() == 0 and session.query(ShadowRow).count() == 0
        assert not shadows.score(session, name, [0.0] * 4, "judge/abc", [])
        assert not shadows.drop(session, name, "whatever")


def test_a_version_that_is_rolled_back_takes_its_open_groups_with_it(any_journal: Journal) -> None:
    for name in ("t1", "t2"):
        begun(any_journal, name)
    with any_journal.write() as session:
        session.get_one(ShadowGroupRow, "t2").version = 3
    with any_journal.write() as session:
        lifecycle.ensure_agent(session, "agent")
        auto_rollback.drop_rows(session, "agent", 3)
    assert (group(any_journal).state, group(any_journal, "t2").state) == ("drawing", "dropped")
    assert group(any_journal, "t2").reason == "rolled back: agent@v3"


def test_exports_hold_no_shadow(journal: Journal) -> None:
    name = begun(journal)
    add_feedback(journal, name, 1.0)
    before = list(rows(journal, Format.REWARDS))
    with journal.write() as session:
        shadows.file(session, name, DRAWN)
        shadows.score(session, name, [0.0, 1.0, 1.0, 1.0], "judge/abc", [])
    assert list(rows(journal, Format.REWARDS)) == before and len(before) == 1
