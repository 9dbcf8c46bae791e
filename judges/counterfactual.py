"""Two readings of one turn: as it stands, and without what looks like an attempt to speak to the judge.

Where both come to the same verdict it stands, with the hint of the second reading only. Where they differ the turn is quarantined: an
abstention with the reason `injection`, no hint, both readings' votes kept.
"""

import asyncio
from dataclasses import replace

from judges.ballot import Result, count
from judges.case import Case
from judges.judge import JudgeUnavailable
from judges.panel import Answers, Panel

INJECTION = "injection"


async def examine(panel: Panel, case: Case, votes: int, min_agreement: float = 0.0) -> tuple[str, Result]:
    """The model that judged the case, and its result. Raises JudgeUnavailable or VoidBallot."""
    questions = [case.messages] if case.redacted is None else [case.messages, case.redacted]
    readings: list[Answers] = []
    for answers in await asyncio.gather(*(panel.ask(each, votes) for each in questions), return_exceptions=True):
        if isinstance(answers, BaseException):
            raise answers
        readings.append(answers)
    model = readings[0].model
    if any(reading.model != model for reading in readings):
        raise JudgeUnavailable(f"two readings of one turn by two judges, {model} and {readings[1].model}, cannot be compared")
    first, *rest = (count(reading.texts, votes, min_agreement) for reading in readings)
    return model, decide(first, rest[0]) if rest else first


def decide(as_it_stands: Result, without: Result) -> Result:
    """One result of both readings."""
    votes = (*as_it_stands.votes, *without.votes)
    n_failed = as_it_stands.n_failed + without.n_failed
    if as_it_stands.score == without.score:
        confidence = min(as_it_stands.confidence, without.confidence)
        n_bearing = as_it_stands.n_bearing + without.n_bearing
        return replace(without, votes=votes, n_failed=n_failed, confidence=confidence, n_bearing=n_bearing)
    share = sum(vote == as_it_stands.score for vote in votes) / len(votes)
    return Result(None, share, None, votes, n_failed, reason=INJECTION)
