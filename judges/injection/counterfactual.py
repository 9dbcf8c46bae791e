"""Two readings of one turn: the original, and one without possible prompt injection.

If every vote of both comes to the same verdict, it stands, with the hint of the second reading only. If they differ, or
if nothing is left of the reaction, the turn is quarantined: an abstention with the reason `injection`, no hint, both
readings' votes kept.
"""

import asyncio
from dataclasses import replace

from burnish.judges.judge import JudgeUnavailable
from burnish.judges.models.panel import Answers, Panel
from burnish.judges.verdicts.ballot import Result, count
from burnish.judges.verdicts.case import Case

INJECTION = "injection"
UNANIMOUS = 1.0
"""On a turn that speaks to its judge every vote must agree. A judge that the text sways only now and then must not pass
as a majority.
"""


async def examine(panel: Panel, case: Case, votes: int, min_agreement: float = 0.0) -> tuple[str, Result]:
    """The model that judged the case, and its result. Raises JudgeUnavailable or VoidBallot."""
    questions = [case.messages] if case.redacted is None else [case.messages, case.redacted]
    readings: list[Answers] = []
    asked = (panel.ask(each, votes, case.agent) for each in questions)
    for answers in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(answers, BaseException):
            raise answers
        readings.append(answers)
    model = readings[0].model
    if any(reading.model != model for reading in readings):
        raise JudgeUnavailable(f"expected one judge for both readings of a turn, got {model} and {readings[1].model}")
    if case.redacted is None:
        return model, count(readings[0].texts, votes, min_agreement)
    first, second = (count(reading.texts, votes, UNANIMOUS) for reading in readings)
    return model, decide(first, second, is_hollow=case.is_hollow)


def decide(as_it_stands: Result, without: Result, *, is_hollow: bool = False) -> Result:
    """One result of both readings. A second reading that `is_hollow` contained no reaction, so it can confirm no
    verdict.
    """
    votes = (*as_it_stands.votes, *without.votes)
    n_failed = as_it_stands.n_failed + without.n_failed
    if as_it_stands.score == without.score and not is_hollow:
        confidence = min(as_it_stands.confidence, without.confidence)
        n_bearing = as_it_stands.n_bearing + without.n_bearing
        return replace(without, votes=votes, n_failed=n_failed, confidence=confidence, n_bearing=n_bearing)
    share = sum(vote == as_it_stands.score for vote in votes) / len(votes)
    return Result(None, share, None, votes, n_failed, reason=INJECTION)
