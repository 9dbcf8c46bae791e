"""The effective reward of a turn: a pure function of the stored records, recomputable for any past version.

Explicit feedback of an authenticated user outranks the judge; the judge outranks the harness. A lower level never adds to
or overrides a higher one, and no verdict is None, never 0. Only a user's own words become a hint.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from burnish.records import Feedback, FeedbackSource, Judgement, Reward

NEXT_STATE = "next_state"
FEEDBACK = "feedback"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A stored judgement with the key of its row and the text it was made from (`NEXT_STATE` or `FEEDBACK`)."""

    record_id: str
    origin: str
    judgement: Judgement
    is_from_user: bool


def compose(feedback: Sequence[Feedback], verdicts: Sequence[Verdict]) -> Reward | None:
    """The reward of the highest level that has one; the latest word counts within a level. None where nothing was said."""
    hint = _hint(verdicts)
    for source, level in ((FeedbackSource.USER, "user"), (None, "judge"), (FeedbackSource.HARNESS, "harness")):
        if source is None:
            scored = [v for v in verdicts if v.judgement.score is not None and v.origin == NEXT_STATE]
            if scored:
                best = max(scored, key=lambda v: v.judgement.created_at)
                return Reward(float(best.judgement.score or 0), level, _ids([best.record_id], hint), hint and hint[1])
            continue
        rated = [f for f in feedback if f.source is source and f.rating is not None]
        if rated:
            last = max(rated, key=lambda f: f.created_at)
            return Reward(float(last.rating or 0.0), level, _ids([last.feedback_id], hint), hint and hint[1])
    return None


def _hint(verdicts: Sequence[Verdict]) -> tuple[str, str] | None:
    """The record id and text of the hint to use: from explicit feedback before the next state."""
    usable = [v for v in verdicts if v.is_from_user and v.judgement.hint]
    usable.sort(key=lambda v: (v.origin == FEEDBACK, v.judgement.created_at))
    return (usable[-1].record_id, usable[-1].judgement.hint or "") if usable else None


def _ids(records: list[str], hint: tuple[str, str] | None) -> list[str]:
    return [*records, hint[0]] if hint and hint[0] not in records else records
