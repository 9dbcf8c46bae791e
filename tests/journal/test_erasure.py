"""Erasure: of the erased voice nothing is left in the journal, and everybody else's rows and texts stay."""

from pathlib import Path
from typing import Any

from sqlalchemy import select

from burnish.journal import Journal
from burnish.journal.privacy import erasure
from burnish.journal.shadows import Drawn, begin, file
from burnish.journal.tables import (
    BlobRow,
    ErasureJob,
    FeedbackRow,
    InteractionRow,
    JudgementRow,
    NextStateRow,
    SampleRow,
    SessionRow,
    ShadowRow,
    StepRow,
)
from burnish.journal.turns import ask_judge, record_judgement
from burnish.records import Interaction, NextStateKind, VersionName, int_array, who_of
from burnish.rewards import NEXT_STATE
from tests.factories import feedback, interaction, judgement, user
from tests.turns import add_feedback, add_next_state, add_turn

ANN, BOB = who_of("default", "key-1", "ann"), who_of("default", "key-1", "bob")


def said(who: str, *texts: str, **changes: Any) -> Interaction:
    return interaction([user(text) for text in texts], f"reply to {who}", user=who, **changes)


def count(journal: Journal, table: Any) -> int:
    with journal.read() as session:
        return len(session.scalars(select(table)).all())


def texts(journal: Journal) -> str:
    with journal.read() as session:
        return "\n".join(session.scalars(select(BlobRow.body)))


def erase(journal: Journal, who: tuple[str, str, str]) -> erasure.Erased:
    with journal.write() as session:
        names = list(session.scalars(select(InteractionRow.interaction_id).where(*erasure.turns_of(who))))
        gone = erasure.erase_turns(session, names)
        erasure.erase_feedback(session, *erasure.feedback_of(who))
        erasure.drop_unused(session)
    return gone


def test_a_text_that_others_use_stays(any_journal: Journal) -> None:
    add_turn(any_journal, said("ann", "shared words", "words of ann alone"))
    kept = add_turn(any_journal, said("bob", "shared words"))
    add_next_state(any_journal, kept, NextStateKind.USER_REPLY, user("what came back to bob"))
    assert len(erase(any_journal, ANN).turns) == 1
    left = texts(any_journal)
    assert "words of ann alone" not in left and "reply to ann" not in left
    assert "shared words" in left and "reply to bob" in left and "what came back to bob" in left
    with any_journal.read() as session:
        assert session.scalars(select(InteractionRow.interaction_id)).all() == [kept]


def test_everything_on_a_turn_goes_with_it(any_journal: Journal) -> None:
    name = add_turn(any_journal, said("ann", "question of ann"))
    add_next_state(any_journal, name, NextStateKind.USER_REPLY, user("no, bold please"))
    add_feedback(any_journal, name, -1.0, comment="never bold", key_id="back-end")
    with any_journal.write() as session:
        record_judgement(session, judgement(name, -1, "Write bold."), NEXT_STATE)
        ask_judge(session, name, NEXT_STATE)
        turn = session.get_one(InteractionRow, name)
        session.add(
            SessionRow(
                session_id=turn.session_id,
                tenant="default",
                key_id="key-1",
                agent="agent",
                started_at=1.0,
                last_at=1.0,
                opening="question of ann",
            )
        )
        assert begin(session, turn, 2, "wish of ann", None)
    with any_journal.write() as session:
        assert file(session, name, [Drawn(user("shadow"), "stop", int_array([1]), turn_logprobs())], for_judge=True)
    assert erase(any_journal, ANN).n_feedback == 1
    for table in (InteractionRow, NextStateRow, FeedbackRow, JudgementRow, SessionRow, ShadowRow, BlobRow):
        assert count(any_journal, table) == 0, table
    with any_journal.read() as session:
        for table in ("judge_job", "rubric_job", "shadow_job", "shadow_group"):
            assert session.connection().exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one() == 0, table


def turn_logprobs() -> Any:
    return interaction([user("x")]).logprobs[:1]


def test_words_that_came_back_to_another_go_too(any_journal: Journal) -> None:
    kept = add_turn(any_journal, said("bob", "hello"))
    gone = add_turn(any_journal, said("ann", "words of ann"), parent_id=kept)
    add_next_state(any_journal, kept, NextStateKind.USER_REPLY, user("words of ann"))
    with any_journal.write() as session:
        session.get_one(NextStateRow, kept).follower_id = gone
        record_judgement(session, judgement(kept, -1, "hint from ann"), NEXT_STATE)
        session.get_one(InteractionRow, kept).is_ready = True
    assert erase(any_journal, ANN).touched == [kept]
    assert "words of ann" not in texts(any_journal)
    assert count(any_journal, JudgementRow) == 0
    with any_journal.read() as session:
        assert not session.get_one(InteractionRow, kept).is_ready


def test_a_key_without_a_user_is_a_voice(any_journal: Journal) -> None:
    add_turn(any_journal, interaction([user("of the key")]))
    add_turn(any_journal, interaction([user("of another key")], key_id="key-2"))
    add_turn(any_journal, said("ann", "of ann"))
    erase(any_journal, who_of("default", "key-1", None))
    assert "of the key" not in texts(any_journal)
    assert "of another key" in texts(any_journal) and "of ann" in texts(any_journal)


def test_another_tenants_user_of_the_same_name_stays(any_journal: Journal) -> None:
    add_turn(any_journal, said("ann", "elsewhere", tenant="other"))
    erase(any_journal, ANN)
    assert "elsewhere" in texts(any_journal)


def test_feedback_on_others_turns_goes_and_their_reward_with_it(any_journal: Journal) -> None:
    key = who_of("default", "page", None)
    name = add_turn(any_journal, said("bob", "hello"), is_ready=True)
    add_feedback(any_journal, name, 1.0, comment="the page's words", key_id="page")
    erase(any_journal, key)
    assert count(any_journal, FeedbackRow) == 0
    with any_journal.read() as session:
        assert not session.get_one(InteractionRow, name).is_ready


def test_the_versions_that_used_a_turn_are_known(any_journal: Journal) -> None:
    name = add_turn(any_journal, said("ann", "hello"))
    idle = add_turn(any_journal, said("ann", "without effect"))
    with any_journal.write() as session:
        for version, turn, skipped in ((3, name, None), (4, idle, "no advantage and no hint")):
            step = StepRow(agent="agent", version=version, parent=0, outcome="published", metrics={}, started_at=1.0)
            session.add(step)
            session.flush()
            session.add(
                SampleRow(step_id=step.step_id, interaction_id=turn, record_ids=[], hint="her hint", skipped=skipped)
            )
    with any_journal.write() as session:
        assert erasure.trained_on(session, [name, idle]) == {VersionName("agent", 3)}
        erasure.erase_turns(session, [name, idle])
        assert erasure.trained_on(session, [name, idle]) == {VersionName("agent", 3)}
        assert set(session.scalars(select(SampleRow.hint))) == {None}


def test_an_erasure_that_is_asked_for_twice_is_one(any_journal: Journal) -> None:
    with any_journal.write() as session:
        assert erasure.ask(session, ANN, "cli", None) == erasure.ask(session, ANN, "cli", "again")
        assert "ann" not in erasure.subject_of(ANN)
    assert count(any_journal, ErasureJob) == 1


def test_nothing_deleted_is_left_in_the_files(journal: Journal, tmp_path: Path) -> None:
    for number in range(200):
        add_turn(journal, said("ann", f"secret-{number:04d} " * 50))
        add_turn(journal, said("bob", f"kept-{number:04d} " * 20))
    (tmp_path / "journal.db.before-0001").write_text("secret-0000")
    erase(journal, ANN)
    journal.compact()
    found = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"secret-" not in found and found.count(b"kept-") == 200 * 20
    assert count(journal, InteractionRow) == 200


def test_postgres_is_compacted(any_journal: Journal) -> None:
    add_turn(any_journal, said("ann", "hello"))
    add_feedback(any_journal, "nothing", 1.0, attached=False, **{"user": "ann"})
    assert feedback("x").user is None
    erase(any_journal, ANN)
    any_journal.compact()
    assert count(any_journal, FeedbackRow) == 0
