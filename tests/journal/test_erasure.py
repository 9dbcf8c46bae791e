"""Erasure: of the erased voice nothing is left in the journal, and everybody else's rows and texts stay."""

from array import array
from pathlib import Path
from typing import Any

from sqlalchemy import select

from burnish.journal import Journal
from burnish.journal.blobs import PART, prompt_of
from burnish.journal.privacy import erasure
from burnish.journal.shadows import Drawn, begin, file
from burnish.journal.tables import (
    BlobRow,
    ErasureJob,
    FeedbackRow,
    GroupSampleRow,
    InteractionRow,
    JudgementRow,
    NextStateRow,
    PromptPartRow,
    SampleRow,
    SessionRow,
    ShadowGroupRow,
    ShadowRow,
    StepRow,
)
from burnish.journal.turns import ask_judge, record_judgement
from burnish.records import GroupState, Interaction, NextStateKind, TargetKind, VersionName, int_array, who_of
from burnish.rewards import FEEDBACK, NEXT_STATE, WORDS
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


def test_parts_of_a_prompt_that_others_use_stay(any_journal: Journal) -> None:
    alone, shared = array("i", range(PART, 2 * PART)), array("i", range(PART))
    add_turn(any_journal, said("ann", "x", prompt_ids=shared + alone))
    kept = add_turn(any_journal, said("bob", "y", prompt_ids=shared + array("i", [7])))
    assert count(any_journal, PromptPartRow) == 2
    erase(any_journal, ANN)
    assert count(any_journal, PromptPartRow) == 1
    with any_journal.read() as session:
        assert prompt_of(session, session.get_one(InteractionRow, kept)) == shared + array("i", [7])


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


def wish(journal: Journal, name: str, text: str, **columns: Any) -> None:
    """A shadow group that is graded on `text`."""
    with journal.write() as session:
        assert begin(session, session.get_one(InteractionRow, name), 2, text, "f-1")
        session.flush()
        row = session.get_one(ShadowGroupRow, name)
        for column, value in columns.items():
            setattr(row, column, value)


def hint(journal: Journal, name: str, text: str, origin: str = FEEDBACK, judge_id: str = f"{WORDS}1") -> None:
    with journal.write() as session:
        said = judgement(name, None, text, hint_status="accepted", judge_id=judge_id)
        record_judgement(session, said, origin)


def wishes(journal: Journal) -> dict[str, tuple[str, str]]:
    with journal.read() as session:
        return {row.interaction_id: (row.wish, row.state) for row in session.scalars(select(ShadowGroupRow))}


PAGE = who_of("default", "page", None)


def test_words_about_others_turns_leave_the_wishes_of_their_groups(any_journal: Journal) -> None:
    """Bob's groups are graded on hints on Bob's turns, and a page gave one of those."""
    first, later, other = (add_turn(any_journal, said("bob", text)) for text in ("one", "two", "three"))
    add_feedback(any_journal, first, -1.0, comment="the page's words", key_id="page")
    add_feedback(any_journal, other, -1.0, comment="bob's words", user="bob")
    hint(any_journal, first, "the page's words")
    hint(any_journal, other, "bob's words")
    wish(any_journal, first, "the page's words", state=GroupState.SPENT, spent_step=1)
    wish(any_journal, later, "bob's words\nthe page's words")
    wish(any_journal, other, "bob's words")
    with any_journal.write() as session:
        gone = erasure.erase_feedback(session, *erasure.feedback_of(PAGE))
    assert gone.groups == {first, later}
    assert wishes(any_journal) == {
        first: ("", GroupState.SPENT),
        later: ("bob's words", GroupState.DROPPED),
        other: ("bob's words", GroupState.DRAWING),
    }


def test_words_that_came_back_leave_the_wishes_too(any_journal: Journal) -> None:
    kept = add_turn(any_journal, said("bob", "hello"))
    gone = add_turn(any_journal, said("ann", "words of ann"))
    add_next_state(any_journal, kept, NextStateKind.USER_REPLY, user("words of ann"))
    with any_journal.write() as session:
        session.get_one(NextStateRow, kept).follower_id = gone
    hint(any_journal, kept, "hint from ann", NEXT_STATE, "base/abc")
    wish(any_journal, kept, "hint from ann")
    assert erase(any_journal, ANN).groups == {kept}
    assert wishes(any_journal) == {kept: ("", GroupState.DROPPED)}


def test_a_hint_in_the_words_of_feedback_that_is_left_stays(any_journal: Journal) -> None:
    name = add_turn(any_journal, said("bob", "hello"))
    add_feedback(any_journal, name, -1.0, comment="the page's words", key_id="page")
    add_feedback(any_journal, name, -1.0, comment="bob's words", user="bob")
    hint(any_journal, name, "bob's words")
    erase(any_journal, PAGE)
    assert count(any_journal, JudgementRow) == 1 and count(any_journal, FeedbackRow) == 1


def learn(journal: Journal, version: int, samples: dict[str, list[str]], groups: tuple[str, ...] = ()) -> None:
    with journal.write() as session:
        step = StepRow(agent="agent", version=version, parent=0, outcome="published", metrics={}, started_at=1.0)
        session.add(step)
        session.flush()
        for turn, records in samples.items():
            session.add(SampleRow(step_id=step.step_id, interaction_id=turn, record_ids=records))
        for turn in groups:
            session.add(GroupSampleRow(step_id=step.step_id, interaction_id=turn, scores=[0.0, 1.0]))


def test_the_versions_that_feedback_on_others_turns_rewarded_are_known(any_journal: Journal) -> None:
    rated, own, hinted, later, early = (add_turn(any_journal, said("bob", text)) for text in "abcde")
    add_feedback(any_journal, rated, 1.0, key_id="page", feedback_id="page:1")
    add_feedback(any_journal, hinted, None, comment="the page's words", key_id="page", feedback_id="page:2")
    add_feedback(any_journal, later, None, score=1.0, key_id="page", feedback_id="page:Ann", about=TargetKind.SESSION)
    with any_journal.write() as session:
        session.get_one(FeedbackRow, "page:Ann").session_id = f"s-{1}"
        for name in (later, early):
            session.get_one(InteractionRow, name).session_id = f"s-{1}"
    hint(any_journal, hinted, "the page's words")
    with any_journal.read() as session:
        (judged,) = session.scalars(select(JudgementRow.judgement_id))
    learn(any_journal, 1, {rated: ["page:1"]})
    learn(any_journal, 2, {rated: ["key-1:of bob"], own: ["f-9"]})
    learn(any_journal, 3, {hinted: ["j-other", judged]})
    learn(any_journal, 4, {early: ["page:Ann", "next_state"]})
    with any_journal.write() as session:
        learned = erasure.learned_from(session, *erasure.feedback_of(PAGE))
        assert {name.version for name in learned.versions} == {1, 3, 4}
        assert learned.turns == {rated, hinted, early}
        assert learned.records == {"page:1", "page:2", "page:Ann", judged}
        erasure.erase_feedback(session, *erasure.feedback_of(PAGE))
    with any_journal.read() as session:
        left = [name for row in session.scalars(select(SampleRow)) for name in row.record_ids]
    assert not any("Ann" in name for name in left) and "key-1:of bob" in left


def test_the_versions_that_used_a_group_are_known(any_journal: Journal) -> None:
    name = add_turn(any_journal, said("bob", "hello"))
    learn(any_journal, 5, {}, (name,))
    with any_journal.read() as session:
        assert erasure.trained_on(session, (), [name]) == {VersionName("agent", 5)}
        assert erasure.trained_on(session, [name]) == {VersionName("agent", 5)}


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
