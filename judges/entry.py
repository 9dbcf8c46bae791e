"""From a ballot's result to the record that is stored: the hint's fate and what spoke to the judge go with it."""

import time

from burnish.records import Judgement
from judges.ballot import Result
from judges.case import Case
from judges.hints import fate_of


def judgement(turn: str, judge_id: str, result: Result, asked: Case) -> Judgement:
    """The record of what `judge_id` said of `turn` when it was asked `asked`, made now."""
    return Judgement(
        turn,
        judge_id,
        result.score,
        result.confidence,
        result.hint,
        result.votes,
        result.n_failed,
        time.time(),
        result.reason,
        _fate(result, asked),
        asked.grounds.findings,
    )


def _fate(result: Result, asked: Case) -> str | None:
    """What becomes of the ballot's hint; None where there is none."""
    if result.hint is None:
        return None
    n_votes = len(result.votes) + result.n_failed
    return fate_of(result.hint, result.score, n_votes, result.n_bearing, asked.grounds_of(result.hint))
