"""Turns in SQL: they come back equal, a judgement is stored once, and a turn is ready when its reward is known."""

from dataclasses import replace

from sqlalchemy import update

from burnish.journal import Journal, jobs, story
from burnish.journal.evidence import reward_of, settle
from burnish.journal.summary import summary
from burnish.journal.tables import FeedbackRow, InteractionRow, JudgeJob, JudgementRow, NextStateRow, SessionRow
from burnish.journal.turns import ask_judge, interaction_of, judge_subject, messages_of, record_judgement
from burnish.records import FeedbackSource, NextStateKind, Sampling, TargetKind
from burnish.rewards import FEEDBACK, NEXT_STATE
from tests.factories import interaction, judgement, user
from tests.turns import add_feedback, add_next_state, add_turn

HINT = "Write without bold text."


def is_ready(journal: Journal, name: str = "t") -> bool:
    with journal.read() as session:
        return session.get_one(InteractionRow, name).is_ready


def test_an_interaction_comes_back_equal(any_journal: Journal) -> None:
    turn = interaction(
        [user("hé \ud83d\x00"), {"role": "user", "content": [{"type": "text", "text": "x"}]}],
        "fine",
        tools=({"type": "function", "function": {"name": "f"}},),
        sampling=Sampling(temperature=0.7, top_k=5, is_constrained=True),
        user="ana",
        choice=2,
        n_choices=3,
        may_train=False,
        is_aborted=True,
        quarantine="why",
        turn_type="side",
    )
    add_turn(any_journal, turn)
    with any_journal.read() as session:
        found = interaction_of(session, session.get_one(InteractionRow, turn.interaction_id))
    assert replace(found, messages=list(found.messages)) == replace(turn, messages=list(turn.messages))


def test_messages_keep_their_order_and_repetitions(any_journal: Journal) -> None:
    a, b = user("a"), user("b")
    add_turn(any_journal, interaction([b, a, b, a], interaction_id="t"))
    with any_journal.read() as session:
        digests = session.get_one(InteractionRow, "t").message_digests
        assert len(set(digests)) == 2
        assert messages_of(session, digests) == [b, a, b, a]
        assert messages_of(session, []) == []


def test_a_judgement_is_stored_once_per_judge_and_origin(any_journal: Journal) -> None:
    with any_journal.write() as session:
        assert record_judgement(session, judgement("t", 1), NEXT_STATE)
        assert not record_judgement(session, judgement("t", -1), NEXT_STATE)
        assert record_judgement(session, judgement("t", -1), FEEDBACK)
        assert record_judgement(session, judgement("t", -1, judge_id="other"), NEXT_STATE)
    with any_journal.read() as session:
        stored = session.query(JudgementRow).all()
        assert sorted((row.judge_id, row.origin, row.score) for row in stored) == [
            ("base/abc", "feedback", -1),
            ("base/abc", "next_state", 1),
            ("other", "next_state", -1),
        ]


def test_a_turn_is_ready_once_its_reward_is_known_and_no_judge_is_at_work(any_journal: Journal) -> None:
    add_turn(any_journal, interaction([user("a")], interaction_id="t"))
    with any_journal.write() as session:
        settle(session, "t")
    assert not is_ready(any_journal)  # no feedback
    add_feedback(any_journal, "t", 1.0)
    with any_journal.write() as session:
        ask_judge(session, "t", NEXT_STATE)
        settle(session, "t")
    assert not is_ready(any_journal)  # the judge may still find a hint
    with any_journal.write() as session:
        (job,) = jobs.lease(session, JudgeJob, "w")
        settle(session, "t")
    assert not is_ready(any_journal)
    with any_journal.write() as session:
        jobs.fail(session, JudgeJob, job, "no", max_attempts=1)
        settle(session, "t")
    assert is_ready(any_journal)  # the judge gave up; the user's rating stays


def test_an_abstention_leaves_a_turn_unready(any_journal: Journal) -> None:
    add_turn(any_journal, interaction([user("a")], interaction_id="t"))
    add_next_state(any_journal, "t", NextStateKind.USER_REPLY)
    with any_journal.write() as session:
        record_judgement(session, judgement("t", None), NEXT_STATE)
        settle(session, "t")
        assert reward_of(session, "t") is None
    assert not is_ready(any_journal)


def test_late_feedback_overrules_the_judge(any_journal: Journal) -> None:
    add_turn(any_journal, interaction([user("a")], interaction_id="t"))
    add_next_state(any_journal, "t", NextStateKind.USER_REPLY)
    with any_journal.write() as session:
        record_judgement(session, judgement("t", 1), NEXT_STATE)
        before = reward_of(session, "t")
    add_feedback(any_journal, "t", -1.0)
    with any_journal.read() as session:
        after = reward_of(session, "t")
    assert before is not None and after is not None
    assert (before.value, before.source, after.value, after.source) == (1.0, "judge", -1.0, "user")


def test_the_hint_of_a_tool_result_is_never_used(any_journal: Journal) -> None:
    for name, kind in (("tool", NextStateKind.TOOL_RESULT), ("user", NextStateKind.USER_REPLY)):
        add_turn(any_journal, interaction([user("a")], interaction_id=name))
        add_next_state(any_journal, name, kind)
        with any_journal.write() as session:
            record_judgement(session, judgement(name, -1, HINT), NEXT_STATE)
    with any_journal.read() as session:
        of_tool, of_user = reward_of(session, "tool"), reward_of(session, "user")
    assert of_tool is not None and of_user is not None
    assert (of_tool.value, of_tool.hint) == (-1.0, None)
    assert (of_user.value, of_user.hint) == (-1.0, HINT)


def test_the_hint_of_a_harness_comment_is_never_used_not_even_beside_a_users_rating(any_journal: Journal) -> None:
    add_turn(any_journal, interaction([user("a")], interaction_id="t"))
    add_feedback(any_journal, "t", None, comment="obey me", source=FeedbackSource.HARNESS)
    add_feedback(any_journal, "t", -1.0)
    with any_journal.write() as session:
        record_judgement(session, judgement("t", -1, HINT), FEEDBACK)
        reward = reward_of(session, "t")
    assert reward is not None
    assert (reward.source, reward.hint) == ("user", None)


def test_a_comment_alone_gives_a_hint_but_no_reward(any_journal: Journal) -> None:
    add_turn(any_journal, interaction([user("a")], interaction_id="t"))
    add_feedback(any_journal, "t", None, comment="no bold")
    with any_journal.write() as session:
        record_judgement(session, judgement("t", -1, HINT), FEEDBACK)
        assert reward_of(session, "t") is None
        add = judgement("t", 1)
        record_judgement(session, add, NEXT_STATE)
        reward = reward_of(session, "t")
    assert reward is not None
    assert (reward.value, reward.source, reward.hint) == (1.0, "judge", HINT)


def test_the_judge_is_asked_once_per_origin(any_journal: Journal) -> None:
    with any_journal.write() as session:
        for _ in range(2):
            ask_judge(session, "t", NEXT_STATE)
            ask_judge(session, "t", FEEDBACK)
        assert jobs.counts(session, JudgeJob) == {"queued": 2}
        assert session.get(JudgeJob, judge_subject("t", FEEDBACK)) is not None


def test_the_summary_counts_by_kind(any_journal: Journal) -> None:
    add_turn(any_journal, interaction([user("a")], interaction_id="a"))
    add_turn(any_journal, interaction([user("b")], interaction_id="b"), skip_reason="opted out")
    add_turn(any_journal, interaction([user("c")], interaction_id="c", agent="other"))
    add_feedback(any_journal, "a", 1.0)
    add_feedback(any_journal, "unknown", 1.0, attached=False)
    with any_journal.write() as session:
        settle(session, "a")
        session.add(NextStateRow(interaction_id="a", kind="user_reply", message_digests=[], created_at=0.0))
    with any_journal.read() as session:
        found = summary(session, "agent")
        assert session.query(FeedbackRow).count() == 2
    expected = {
        "interactions": 2,
        "ready": 1,
        "spent": 0,
        "skip_reasons": {"opted out": 1},
        "feedback": 2,
        "feedback_pending": 1,
    }
    assert found | expected == found


def add_tool_session(journal: Journal, *, has_tools: bool) -> None:
    """Two turns of one session, the second judged -1, and a user's late outcome that all went well."""
    for n, name in enumerate(("t0", "t1")):
        add_turn(journal, interaction([user("a")], interaction_id=name, started_at=10.0 + n), session_id="s")
        add_next_state(journal, name, NextStateKind.TOOL_RESULT)
    add_feedback(journal, "t1", None, outcome=1.0, about=TargetKind.SESSION)
    with journal.write() as session:
        row = {"tenant": "default", "key_id": "key-1", "agent": "agent", "started_at": 1.0, "last_at": 1.0}
        session.add(SessionRow(session_id="s", has_tools=has_tools, **row))
        session.execute(update(FeedbackRow).values(session_id="s"))
        record_judgement(session, judgement("t1", -1), NEXT_STATE)


def test_the_outcome_of_a_tool_session_counts_for_every_step(any_journal: Journal) -> None:
    add_tool_session(any_journal, has_tools=True)
    with any_journal.read() as session:
        first, second = reward_of(session, "t0"), reward_of(session, "t1")
    assert first is not None and second is not None
    assert (first.value, first.source, first.step) == (1.0, "integrated", 0)
    assert (second.value, second.source, second.step) == (0.0, "integrated", 1)


def test_the_outcome_of_a_chat_counts_for_the_turn_that_ends_it(any_journal: Journal) -> None:
    add_tool_session(any_journal, has_tools=False)
    with any_journal.read() as session:
        first, second = reward_of(session, "t0"), reward_of(session, "t1")
    assert first is None and second is not None
    assert (second.value, second.source, second.step) == (1.0, "outcome", None)


def test_a_withheld_turn_is_not_ready_and_its_story_says_why(any_journal: Journal) -> None:
    add_turn(any_journal, interaction([user("a")], interaction_id="t"))
    add_feedback(any_journal, "t", 1.0)
    add_feedback(any_journal, "t", -1.0, source=FeedbackSource.VERIFIER)
    with any_journal.write() as session:
        settle(session, "t")
    assert not is_ready(any_journal)
    with any_journal.read() as session:
        told = story.tell(session, "t")
    assert (told["reward"], told["withheld"]) == (None, "disagreement: user +1, verifiable -1")
    assert told["training_status"] == "withheld: disagreement: user +1, verifiable -1"
