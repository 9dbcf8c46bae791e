"""From a ballot's result to the stored record, with the hint's status and possible prompt injection."""

import time

from burnish.judges.verdicts.ballot import Result
from burnish.judges.verdicts.case import Case
from burnish.judges.verdicts.hint_rules import hint_status_of
from burnish.records import Judgement
from burnish.rewards import ACCEPTED


def judgement(turn: str, judge_id: str, result: Result, asked: Case) -> Judgement:
    """The record of `judge_id`'s result on `turn`, made now; `asked` is its case.

    Of the ballot's usable hints the first is the hint. If none is usable, the one that most votes wrote is kept, with
    its status.
    """
    hints = [hint for hint in (result.hint, *result.others) if hint is not None]
    skip_reasons = [_skip_reason(hint, result, asked) for hint in hints]
    usable = [hint for hint, skip_reason in zip(hints, skip_reasons, strict=True) if skip_reason == ACCEPTED]
    return Judgement(
        turn,
        judge_id,
        result.score,
        result.confidence,
        usable[0] if usable else result.hint,
        result.votes,
        result.n_failed,
        time.time(),
        result.reason,
        ACCEPTED if usable else skip_reasons[0] if skip_reasons else None,
        asked.grounds.findings,
        tuple(usable[1:]),
    )


def _skip_reason(hint: str, result: Result, asked: Case) -> str:
    """The status of one of the ballot's hints."""
    n_votes = len(result.votes) + result.n_failed
    return hint_status_of(hint, result.score, n_votes, result.n_bearing, asked.grounds_of(hint))
