"""From a ballot's result to the record that is stored: the hint's fate and what spoke to the judge go with it."""

import time

from burnish.judges.verdicts.ballot import Result
from burnish.judges.verdicts.case import Case
from burnish.judges.verdicts.hint_rules import fate_of
from burnish.records import Judgement
from burnish.rewards import ACCEPTED


def judgement(turn: str, judge_id: str, result: Result, asked: Case) -> Judgement:
    """The record of what `judge_id` said of `turn` when it was asked `asked`, made now.

    Of the ballot's hints that may be used the first is the hint; where none may, the one that most votes wrote stays,
    with its fate.
    """
    hints = [hint for hint in (result.hint, *result.others) if hint is not None]
    fates = [_fate(hint, result, asked) for hint in hints]
    usable = [hint for hint, fate in zip(hints, fates, strict=True) if fate == ACCEPTED]
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
        ACCEPTED if usable else fates[0] if fates else None,
        asked.grounds.findings,
        tuple(usable[1:]),
    )


def _fate(hint: str, result: Result, asked: Case) -> str:
    """What becomes of one of the ballot's hints."""
    n_votes = len(result.votes) + result.n_failed
    return fate_of(hint, result.score, n_votes, result.n_bearing, asked.grounds_of(hint))
