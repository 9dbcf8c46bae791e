"""The effective reward of a turn: a pure function of the stored records, which can be computed again for any past
version.

The levels, highest first: verifier, user, later outcome, judge, implied. The highest level with a value gives the
reward, and no lower one adds to it. No value is None, never 0. If strong values of the upper three levels contradict
each other, or the environment failed, the turn is withheld: it is kept with the reason and never trained on.

The holder of an inference key writes tools' results and may send feedback as the harness. So the harness's feedback is
never a reward, and a tool's result is one only if the operator named the tool (`journal.verifiers`). The result of
another tool never overrides a user.

In a tool session with a known outcome, the reward of a step is the outcome plus the step's own reward (process and
outcome integrated: R_t = o + Σ r_t,i / m). Only a user's own words become a hint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

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
    Who,
    who_of,
)

NEXT_STATE = "next_state"
FEEDBACK = "feedback"
ACCEPTED = "accepted"
"""The status of a usable hint."""
WORDS = "words/"
"""Begins the judge's id of a hint in the user's own words, which no model was asked about."""
STRONG = 0.5
"""From this size on a value is strong."""
REGENERATED = -0.5
"""The value if somebody asked for another reply without a reason."""
REWRITTEN = 0.02
"""Up to this share, a change of a reply counts as the harness's own spelling."""
NOT_THE_AGENTS_FAULT = frozenset({401, 403, 407, 408, 425, 429, 451})
"""4xx statuses that no other argument would have avoided: credentials, limits, time."""


class Level(StrEnum):
    """The source of a reward. The order is the rank."""

    VERIFIABLE = "verifiable"
    USER = "user"
    OUTCOME = "outcome"
    JUDGE = "judge"
    IMPLICIT = "implicit"


RATINGS = (Level.VERIFIABLE, Level.USER)
"""Sources that rate a reply themselves."""
INTEGRATED = "integrated"
"""The source of a reward made of a session's outcome and a step's own reward."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A stored judgement with the key of its row and the text it was made from (`NEXT_STATE` or `FEEDBACK`)."""

    record_id: str
    origin: str
    judgement: Judgement
    is_from_user: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """All records on one turn. `on_session` is feedback on its whole session if that used tools. `step` is the turn's
    place in it.
    """

    feedback: Sequence[Feedback] = ()
    verdicts: Sequence[Verdict] = ()
    kind: NextStateKind | None = None
    signals: Sequence[Signal] = ()
    on_session: Sequence[Feedback] = ()
    step: int = 0


@dataclass(frozen=True, slots=True)
class Effective:
    """The reward, or the reason why it is `withheld`."""

    reward: Reward | None
    withheld: str | None = None


PRAISE = 0.5
"""Rewards from `PRAISE` up are praise, rewards of −0.5 or less are dislike. Anything between is undecided."""
MIN_RATINGS = 8
"""Least praised replies and least disliked ones by which other replies can be rated."""


class Word(NamedTuple):
    """The value of one level, and the record that holds it."""

    level: Level
    value: float
    record_id: str


def compose(evidence: Evidence) -> Effective:
    """The reward of the highest level that has one. Among people, the latest value counts."""
    if (fault := _fault(evidence)) is not None:
        return Effective(None, f"environment fault: {fault}")
    feedback = [f for f in evidence.feedback if not f.is_deleted]
    own = [f for f in feedback if f.about is not TargetKind.SESSION]  # a good conversation may hold a bad reply
    if (against := _contradiction(_upper(own, evidence.signals)) or _users_disagree(own)) is not None:
        return Effective(None, f"disagreement: {against}")
    words = _upper(feedback, evidence.signals)
    words += [word for word in (_judge(evidence.verdicts), _implied(evidence)) if word]
    last = words[0] if words else None
    outcome = _of_session(evidence.on_session)
    hint = _hint(evidence.verdicts, _user(feedback))
    if outcome is not None:
        return Effective(_integrated(outcome, last, evidence, hint))
    if last is None:
        return Effective(None)
    return Effective(_with_hint(Reward(last.value, last.level, [last.record_id], None), hint))


def needs_judge(feedback: Sequence[Feedback], signals: Sequence[Signal], kind: NextStateKind | None) -> bool:
    """True if a verdict on the next state could change the turn's reward or give its hint.

    The word of a user or a verifier outranks every judge. After a dislike without words, the user's next message may
    still explain it. Words on a whole session say too little about one of its replies.
    """
    own = [f for f in feedback if not f.is_deleted and f.about is not TargetKind.SESSION]
    spoken = _upper(own, signals)
    if not spoken:
        return True
    word = _user(own) or spoken[0]
    return word.value <= 0.0 and kind is NextStateKind.USER_REPLY and not any(map(words_of, own))


def words_of(feedback: Feedback) -> str:
    """A user's own words on a reply, on one line: the comment, or the correction if there is none. Empty for the words
    of anyone else, and for deleted ones.
    """
    if feedback.source is not FeedbackSource.USER or feedback.is_deleted or feedback.about is TargetKind.SESSION:
        return ""
    return " ".join((feedback.comment or feedback.correction or "").split())


def environment_fault(signals: Sequence[Signal]) -> str | None:
    """A failure that no reply could have avoided: a server's error or a time-out. None if there is none."""
    for signal in signals:
        if signal.kind is SignalKind.TIMEOUT:
            return "time-out"
        if signal.kind is SignalKind.HTTP_STATUS and signal.value >= 500:
            return f"HTTP {signal.value:.0f}"
    return None


def _fault(evidence: Evidence) -> str | None:
    """The failure that withholds the turn. If a user or a verifier has spoken, only a named tool can show one."""
    said = (*evidence.feedback, *evidence.on_session)
    if any(f.source is not FeedbackSource.HARNESS and not f.is_deleted for f in said):
        return environment_fault([s for s in evidence.signals if s.provenance is Provenance.VERIFIER])
    return environment_fault(evidence.signals)


def value_of(feedback: Feedback) -> float | None:
    """A rating, or a score in [0, 1] as a rating. None if neither was given."""
    if feedback.rating is not None:
        return feedback.rating
    return 2.0 * feedback.score - 1.0 if feedback.score is not None else None


def _upper(feedback: Sequence[Feedback], signals: Sequence[Signal]) -> list[Word]:
    """The values of the levels above the judge."""
    return [word for word in (*_verified(feedback, signals), _user(feedback), _outcome(feedback)) if word]


def _verified(feedback: Sequence[Feedback], signals: Sequence[Signal]) -> list[Word]:
    """The worst value of the operator's verifiers and named tools.

    Other tools' output does not count, because agents and clients can print what they like.
    """
    values = [
        (value, f.feedback_id)
        for f in feedback
        if f.source is FeedbackSource.VERIFIER and (value := _any(f)) is not None
    ]
    values += [(value, NEXT_STATE) for signal in signals if (value := _shown(signal)) is not None]
    return [Word(Level.VERIFIABLE, *min(values))] if values else []


def _shown(signal: Signal) -> float | None:
    if signal.provenance is not Provenance.VERIFIER:
        return None
    if signal.kind is SignalKind.HTTP_STATUS and 400 <= signal.value < 500 and signal.value not in NOT_THE_AGENTS_FAULT:
        return -1.0
    if signal.kind is SignalKind.TESTS:
        return 1.0 if signal.value == 1.0 else -1.0
    if signal.kind is SignalKind.EXIT_CODE:
        return 1.0 if signal.value == 0.0 else -1.0
    return None


def _user(feedback: Sequence[Feedback]) -> Word | None:
    said = [
        f
        for f in feedback
        if f.source is FeedbackSource.USER and f.about is not TargetKind.SESSION and value_of(f) is not None
    ]
    if not said:
        return None
    last = max(said, key=lambda f: f.created_at)
    return Word(Level.USER, value_of(last) or 0.0, last.feedback_id)


def _outcome(feedback: Sequence[Feedback]) -> Word | None:
    """The later outcome, and a user's rating of the whole conversation that this turn ends."""
    found = [
        (f.created_at, value, f.feedback_id)
        for f in feedback
        if f.source is FeedbackSource.USER
        and (value := _any(f) if f.about is TargetKind.SESSION else f.outcome) is not None
    ]
    return Word(Level.OUTCOME, *max(found)[1:]) if found else None


def _judge(verdicts: Sequence[Verdict]) -> Word | None:
    scored = [v for v in verdicts if v.judgement.score is not None and v.origin == NEXT_STATE]
    if not scored:
        return None
    last = max(scored, key=lambda v: v.judgement.created_at)
    return Word(Level.JUDGE, float(last.judgement.score or 0), last.record_id)


def _implied(evidence: Evidence) -> Word | None:
    if evidence.kind is NextStateKind.REGENERATED:
        return Word(Level.IMPLICIT, REGENERATED, NEXT_STATE)
    changed = max((s.value for s in evidence.signals if s.kind is SignalKind.EDIT), default=0.0)
    return Word(Level.IMPLICIT, -min(1.0, changed), NEXT_STATE) if changed > REWRITTEN else None


def _any(feedback: Feedback) -> float | None:
    value = value_of(feedback)
    return feedback.outcome if value is None else value


def _contradiction(words: Sequence[Word]) -> str | None:
    """Two of the upper levels with strong and opposite values. None if there is no contradiction."""
    for one in words:
        for other in words:
            if one.value >= STRONG and other.value <= -STRONG:
                return f"{one.level} {one.value:+g}, {other.level} {other.value:+g}"
    return None


def _users_disagree(feedback: Sequence[Feedback]) -> str | None:
    """Different people's last ratings of one turn, strong and opposite. The latest of one voice counts."""
    last: dict[Who, float] = {}
    for f in sorted(feedback, key=lambda f: f.created_at):
        value = value_of(f)
        if f.source is FeedbackSource.USER and f.about is not TargetKind.SESSION and value is not None:
            last[who_of(f.tenant, f.key_id, f.user)] = value
    values = last.values()
    if values and max(values) >= STRONG and min(values) <= -STRONG:
        return f"users {max(values):+g} and {min(values):+g}"
    return None


def _of_session(on_session: Sequence[Feedback]) -> Word | None:
    """A session's outcome: a verifier's before a user's, then the latest."""
    found = [
        (f.source is FeedbackSource.VERIFIER, f.created_at, value, f.feedback_id)
        for f in on_session
        if f.source is not FeedbackSource.HARNESS and not f.is_deleted and (value := _any(f)) is not None
    ]
    if not found:
        return None
    is_verified, _, value, record_id = max(found)
    return Word(Level.VERIFIABLE if is_verified else Level.OUTCOME, value, record_id)


def _integrated(outcome: Word, step: Word | None, evidence: Evidence, hint: Verdict | None) -> Reward:
    """The outcome plus the step's own value. The judge's is the mean of its votes, because agreement shows its
    certainty.
    """
    own, records = 0.0, [outcome.record_id]
    if step is not None:
        own = step.value
        records.append(step.record_id)
        if step.level is Level.JUDGE:
            votes = next(v.judgement.votes for v in evidence.verdicts if v.record_id == step.record_id)
            own = sum(vote or 0 for vote in votes) / len(votes) if votes else own
    return _with_hint(Reward(outcome.value + own, INTEGRATED, records, None, evidence.step), hint)


def _hint(verdicts: Sequence[Verdict], user: Word | None) -> Verdict | None:
    """The verdict with the hint to use: from explicit feedback before the next state. None for a reply that a user
    praised.
    """
    if user is not None and user.value > 0.0:
        return None
    usable = [v for v in verdicts if v.is_from_user and v.judgement.hint and v.judgement.hint_status == ACCEPTED]
    usable.sort(key=lambda v: (v.origin == FEEDBACK, v.judgement.created_at))
    return usable[-1] if usable else None


def _with_hint(reward: Reward, verdict: Verdict | None) -> Reward:
    if verdict is None:
        return reward
    records = list(dict.fromkeys([*reward.record_ids, verdict.record_id]))
    return replace(
        reward, record_ids=records, hint=verdict.judgement.hint, candidates=tuple(verdict.judgement.candidates)
    )
