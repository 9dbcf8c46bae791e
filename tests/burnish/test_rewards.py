"""The effective reward: the ranking of sources, absent rewards, and which words may become a hint."""

from collections.abc import Sequence

import pytest

from burnish.records import (
    Feedback,
    FeedbackSource,
    Judgement,
    NextStateKind,
    Provenance,
    Reward,
    Signal,
    SignalKind,
    TargetKind,
)
from burnish.rewards import FEEDBACK, NEXT_STATE, Effective, Evidence, Verdict, needs_judge
from burnish.rewards import compose as compose_all
from tests.factories import feedback, judgement

HINT = "Write without bold text."


def compose(said: Sequence[Feedback], verdicts: Sequence[Verdict]) -> Reward | None:
    return compose_all(Evidence(said, verdicts)).reward


def verdict(
    score: int | None, hint: str | None = None, *, origin: str = NEXT_STATE, from_user: bool = True, at: float = 3000.0
) -> Verdict:
    word: Judgement = judgement("t", score, hint, created_at=at)
    return Verdict(f"j-{origin}-{at:.0f}", origin, word, from_user)


def user_says(rating: float | None, at: float = 2000.0, **changes: object) -> Feedback:
    return feedback("t", rating, feedback_id=f"user-{at:.0f}", created_at=at, **changes)


def harness_says(rating: float | None, at: float = 2000.0) -> Feedback:
    return feedback("t", rating, feedback_id=f"harness-{at:.0f}", source=FeedbackSource.HARNESS, created_at=at)


@pytest.mark.parametrize(
    ("said", "verdicts", "value", "source"),
    [
        ([user_says(-1.0), harness_says(1.0)], [verdict(1)], -1.0, "user"),
        ([user_says(0.0)], [verdict(1)], 0.0, "user"),  # a neutral rating is a rating
        ([user_says(0.25)], [], 0.25, "user"),
        ([harness_says(1.0)], [verdict(-1)], -1.0, "judge"),
        ([harness_says(1.0)], [verdict(0)], 0.0, "judge"),
        ([user_says(None, comment="no bold")], [verdict(1)], 1.0, "judge"),  # words without a rating
    ],
)
def test_the_highest_level_that_spoke_counts_alone(
    said: Sequence[Feedback], verdicts: Sequence[Verdict], value: float, source: str
) -> None:
    reward = compose(said, verdicts)
    assert reward is not None
    assert (reward.value, reward.source) == (value, source)


@pytest.mark.parametrize(
    ("said", "verdicts"),
    [
        ([], []),
        ([], [verdict(None)]),
        ([user_says(None, comment="hm")], []),
        ([], [verdict(-1, HINT, origin=FEEDBACK)]),
        ([harness_says(1.0)], []),  # the key that talks has no vote
        ([harness_says(-1.0)], [verdict(None)]),
    ],
)
def test_nothing_said_is_none_not_zero(said: Sequence[Feedback], verdicts: Sequence[Verdict]) -> None:
    assert compose(said, verdicts) is None


def test_the_latest_word_counts_whatever_the_order_of_the_records() -> None:
    for said in ([user_says(1.0, 10.0), user_says(-1.0, 20.0)], [user_says(-1.0, 20.0), user_says(1.0, 10.0)]):
        reward = compose(said, [])
        assert reward is not None
        assert (reward.value, list(reward.record_ids)) == (-1.0, ["user-20"])
    again = compose([], [verdict(1, at=20.0), verdict(-1, at=10.0)])
    assert again is not None and again.value == 1.0


def test_only_a_users_words_become_a_hint() -> None:
    from_tool = compose([user_says(-1.0)], [verdict(-1, HINT, from_user=False)])
    from_user = compose([user_says(-1.0)], [verdict(-1, HINT)])
    assert from_tool is not None and from_user is not None
    assert (from_tool.hint, list(from_tool.record_ids)) == (None, ["user-2000"])
    assert (from_user.hint, list(from_user.record_ids)) == (HINT, ["user-2000", "j-next_state-3000"])


def test_a_hint_from_feedback_stands_before_one_from_the_next_state() -> None:
    late = verdict(-1, "From the reply after it.", at=9000.0)
    explicit = verdict(-1, "From explicit feedback.", origin=FEEDBACK, at=10.0)
    reward = compose([], [explicit, late])
    assert reward is not None
    assert reward.hint == "From explicit feedback."
    assert list(reward.record_ids) == ["j-next_state-9000", "j-feedback-10"]


def test_the_record_behind_reward_and_hint_is_named_once() -> None:
    reward = compose([], [verdict(-1, HINT)])
    assert reward is not None
    assert list(reward.record_ids) == ["j-next_state-3000"]


def signal(kind: SignalKind, value: float, provenance: Provenance = Provenance.TOOL) -> Signal:
    return Signal(kind, value, provenance)


def verifier_says(rating: float | None, at: float = 2000.0, **changes: object) -> Feedback:
    return feedback(
        "t", rating, feedback_id=f"verifier-{at:.0f}", source=FeedbackSource.VERIFIER, created_at=at, **changes
    )


NAMED_422 = signal(SignalKind.HTTP_STATUS, 422, Provenance.VERIFIER)
TESTS_PASSED = signal(SignalKind.TESTS, 1.0, Provenance.VERIFIER)


@pytest.mark.parametrize(
    ("evidence", "value", "source"),
    [
        (Evidence([verifier_says(1.0)], [verdict(-1)]), 1.0, "verifiable"),
        (Evidence([verifier_says(1.0), user_says(0.25)]), 1.0, "verifiable"),
        (Evidence([user_says(None, score=0.75)]), 0.5, "user"),
        (Evidence([user_says(None, outcome=-1.0, label="reopened")], [verdict(1)]), -1.0, "outcome"),
        (Evidence([user_says(0.25), user_says(None, outcome=-1.0, at=9.0)]), 0.25, "user"),
        (
            Evidence([user_says(1.0, about=TargetKind.SESSION)], [verdict(0)]),
            1.0,
            "outcome",
        ),  # of a chat that ended with this turn
        (Evidence((), [verdict(1)], signals=[signal(SignalKind.TESTS, 0.5, Provenance.VERIFIER)]), -1.0, "verifiable"),
        (
            Evidence((), [verdict(1)], signals=[TESTS_PASSED, signal(SignalKind.EXIT_CODE, 2, Provenance.VERIFIER)]),
            -1.0,
            "verifiable",
        ),
        (Evidence((), [verdict(1)], signals=[NAMED_422]), -1.0, "verifiable"),
        (
            Evidence((), [verdict(1)], signals=[signal(SignalKind.HTTP_STATUS, 422)]),
            1.0,
            "judge",
        ),  # anybody can write that
        (Evidence([user_says(1.0)], signals=[signal(SignalKind.HTTP_STATUS, 404)]), 1.0, "user"),
        (
            Evidence((), [verdict(1)], signals=[signal(SignalKind.HTTP_STATUS, 401, Provenance.VERIFIER)]),
            1.0,
            "judge",
        ),  # credentials are no fault of the agent's
        (
            Evidence((), [verdict(-1)], signals=[signal(SignalKind.EXIT_CODE, 0)]),
            -1.0,
            "judge",
        ),  # an agent can print that
        (Evidence(kind=NextStateKind.REGENERATED), -0.5, "implicit"),
        (
            Evidence((), [verdict(1)], NextStateKind.USER_REPLY, [signal(SignalKind.EDIT, 0.4, Provenance.USER)]),
            1.0,
            "judge",
        ),
        (Evidence(signals=[signal(SignalKind.EDIT, 0.4, Provenance.USER)]), -0.4, "implicit"),
        (Evidence([harness_says(1.0)], kind=NextStateKind.REGENERATED), -0.5, "implicit"),
    ],
)
def test_every_level_stands_in_its_place(evidence: Evidence, value: float, source: str) -> None:
    reward = compose_all(evidence).reward
    assert reward is not None
    assert (reward.value, reward.source) == (value, source)


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(kind=NextStateKind.ABANDONED),
        Evidence(kind=NextStateKind.SESSION_CLOSED),
        Evidence(signals=[signal(SignalKind.EXIT_CODE, 1)]),  # grep finds nothing, which is nobody's fault
        Evidence(signals=[signal(SignalKind.TESTS, 1.0)]),
        Evidence(signals=[signal(SignalKind.HTTP_STATUS, 404)]),  # perhaps a line that was searched for
        Evidence(signals=[signal(SignalKind.HTTP_STATUS, 404, Provenance.WEB)]),
        Evidence(signals=[signal(SignalKind.EDIT, 0.01, Provenance.USER)]),  # a harness's own spelling
        Evidence([user_says(1.0, is_deleted=True)]),
    ],
)
def test_what_says_nothing_gives_nothing(evidence: Evidence) -> None:
    assert compose_all(evidence) == Effective(None)


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (
            Evidence(
                [user_says(1.0)], [verdict(1)], signals=[signal(SignalKind.HTTP_STATUS, 503, Provenance.VERIFIER)]
            ),
            "environment fault: HTTP 503",
        ),
        (Evidence((), [verdict(1)], signals=[signal(SignalKind.HTTP_STATUS, 503)]), "environment fault: HTTP 503"),
        (Evidence([harness_says(1.0)], signals=[signal(SignalKind.TIMEOUT, 1.0)]), "environment fault: time-out"),
        (Evidence([user_says(1.0), verifier_says(-1.0)], signals=[NAMED_422]), "disagreement: user +1, verifiable -1"),
        (Evidence((), [verdict(-1)], signals=[signal(SignalKind.TIMEOUT, 1.0)]), "environment fault: time-out"),
        (Evidence([verifier_says(-1.0), user_says(1.0)]), "disagreement: user +1, verifiable -1"),
        (Evidence([user_says(1.0), user_says(None, outcome=-1.0, at=9.0)]), "disagreement: user +1, outcome -1"),
        (Evidence([user_says(1.0), user_says(-1.0, at=9.0, key_id="other")]), "disagreement: users +1 and -1"),
    ],
)
def test_strong_contradictions_and_faults_of_the_environment_withhold_the_turn(evidence: Evidence, reason: str) -> None:
    assert compose_all(evidence) == Effective(None, reason)


@pytest.mark.parametrize(
    "fault", [signal(SignalKind.HTTP_STATUS, 503), signal(SignalKind.TIMEOUT, 1.0, Provenance.WEB)]
)
def test_what_a_client_says_of_the_environment_takes_back_no_users_word(fault: Signal) -> None:
    assert compose_all(Evidence([user_says(1.0)], [verdict(-1)], signals=[fault])).reward == Reward(
        1.0, "user", ["user-2000"], None
    )
    assert compose_all(Evidence([verifier_says(-1.0)], signals=[fault])).reward == Reward(
        -1.0, "verifiable", ["verifier-2000"], None
    )
    won = [user_says(None, outcome=1.0, about=TargetKind.SESSION, at=50.0)]
    assert compose_all(Evidence(signals=[fault], on_session=won)).reward == Reward(
        1.0, "integrated", ["user-50"], None, 0
    )
    right = user_says(None, demonstration="Do it so.")  # no number, and still a hint (src/burnish/journal/evidence.py)
    assert compose_all(Evidence([right], signals=[fault])) == Effective(None)
    taken_back = user_says(1.0, is_deleted=True)
    assert compose_all(Evidence([taken_back], signals=[fault])).withheld is not None


def test_a_bad_reply_in_a_good_conversation_is_no_contradiction() -> None:
    liked = user_says(1.0, at=9.0, about=TargetKind.SESSION)
    assert compose_all(Evidence([user_says(-1.0), liked])).reward == Reward(-1.0, "user", ["user-2000"], None)


def test_a_judge_who_contradicts_a_user_is_overruled_and_not_a_contradiction() -> None:
    assert compose_all(Evidence([user_says(-1.0)], [verdict(1)])).reward == Reward(-1.0, "user", ["user-2000"], None)


def test_outcome_and_step_are_added_in_a_tool_session() -> None:
    won = [user_says(None, outcome=1.0, about=TargetKind.SESSION, at=50.0)]
    split = judgement("t", 1, votes=[1, 1, 0, -1])
    found = compose_all(Evidence((), [Verdict("j", NEXT_STATE, split, True)], on_session=won, step=3)).reward
    assert found == Reward(1.25, "integrated", ["user-50", "j"], None, 3)
    alone = compose_all(Evidence(on_session=won, step=0)).reward
    assert alone == Reward(1.0, "integrated", ["user-50"], None, 0)
    failed = [*won, verifier_says(-1.0, 10.0, about=TargetKind.SESSION)]  # a verifier outranks a later user
    assert compose_all(Evidence(on_session=failed)).reward == Reward(-1.0, "integrated", ["verifier-10"], None, 0)
    taken_back = [user_says(1.0, about=TargetKind.SESSION, is_deleted=True)]
    assert compose_all(Evidence((), [verdict(1)], on_session=taken_back)).reward == Reward(
        1.0, "judge", ["j-next_state-3000"], None
    )


def test_a_hint_that_was_not_accepted_is_not_used_nor_one_for_a_reply_that_a_user_praised() -> None:
    refused = Verdict("j", NEXT_STATE, judgement("t", -1, HINT, hint_status="length"), True)
    assert compose([], [refused]) == Reward(-1.0, "judge", ["j"], None)
    praised = compose([user_says(1.0)], [verdict(-1, HINT)])
    assert praised == Reward(1.0, "user", ["user-2000"], None)


REPLY, RESULT = NextStateKind.USER_REPLY, NextStateKind.TOOL_RESULT
VERIFIER = FeedbackSource.VERIFIER
PASSED = Signal(SignalKind.EXIT_CODE, 0.0, Provenance.VERIFIER)
FAILED = Signal(SignalKind.EXIT_CODE, 1.0, Provenance.VERIFIER)


@pytest.mark.parametrize(
    ("said", "signals", "kind", "is_needed"),
    [
        ([], [], REPLY, True),
        ([user_says(1.0)], [], REPLY, False),
        ([user_says(None, score=0.9)], [], REPLY, False),
        ([user_says(None, outcome=1.0)], [], REPLY, False),
        ([user_says(-1.0)], [], REPLY, True),  # the next message may say why
        ([user_says(-1.0)], [], RESULT, False),  # a tool's result cannot
        ([user_says(-1.0)], [], None, False),
        ([user_says(-1.0, comment="no bold")], [], REPLY, False),
        ([user_says(-1.0), user_says(None, 2001.0, comment="no bold")], [], REPLY, False),
        ([user_says(None, comment="no bold")], [], REPLY, True),  # words without a rating are no reward
        ([user_says(None, demonstration="1")], [], REPLY, True),
        ([user_says(-1.0), user_says(1.0, 2001.0)], [], REPLY, False),
        ([user_says(1.0, is_deleted=True)], [], REPLY, True),
        ([user_says(1.0, about=TargetKind.SESSION)], [], REPLY, True),
        ([harness_says(1.0)], [], REPLY, True),
        ([feedback("t", 1.0, source=VERIFIER)], [], REPLY, False),
        ([feedback("t", -1.0, source=VERIFIER)], [], REPLY, True),
        ([feedback("t", -1.0, source=VERIFIER)], [], RESULT, False),
        ([], [PASSED], RESULT, False),
        ([], [FAILED], RESULT, False),
        ([], [Signal(SignalKind.EXIT_CODE, 1.0, Provenance.TOOL)], RESULT, True),
    ],
)
def test_a_judge_is_needed_for_a_reward_that_nobody_gave_or_a_hint_that_nobody_wrote(
    said: Sequence[Feedback], signals: Sequence[Signal], kind: NextStateKind | None, is_needed: bool
) -> None:
    assert needs_judge(said, signals, kind) is is_needed
