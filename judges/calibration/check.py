"""The check of a judge: one vote on each case of the golden set that ships, until the outcome is certain.

The cases come in a mixed order that depends on the set alone, so that the first ones stand for all. A hopeless judge is
found out after a few dozen.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from burnish.judges.calibration import fitness, golden
from burnish.judges.calibration.calibrate import Opinion, Terms, opinions_on
from burnish.judges.calibration.fitness import Figures
from burnish.judges.calibration.golden import GoldenCase
from burnish.judges.judge import Judge, JudgeUnavailable
from burnish.records import Fitness

TERMS = Terms(votes=1, concurrency=2)
"""A check must leave the engine to its clients."""
AT_ONCE = 8
"""Cases between two looks at the figures."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of a check, with the reason if the judge is unfit."""

    state: Fitness
    reason: str
    figures: Figures


async def check(
    judge: Judge,
    cases: Sequence[GoldenCase],
    progress: Callable[[], None] = lambda: None,
    keep: Callable[[], Awaitable[None]] | None = None,
) -> Checked:
    """Ask about the cases. `progress` is called after each one, `keep` after every few.

    A question that its server refuses counts as one whose answer cannot be read. Raises JudgeUnavailable as soon as the
    judge does not answer: that says nothing about its fitness.
    """
    mixed = list(cases)
    random.Random(len(mixed)).shuffle(mixed)
    opinions: list[Opinion] = []
    while len(opinions) < len(mixed):
        some = mixed[len(opinions) : len(opinions) + AT_ONCE]
        opinions += await opinions_on(judge, [golden.question(case) for case in some], TERMS, progress)
        if (away := next((each for each in opinions if each.is_away), None)) is not None:
            raise JudgeUnavailable(away.error)
        if keep is not None:
            await keep()
        if reason := fitness.hopeless(mixed[: len(opinions)], opinions, len(mixed)):
            found = fitness.figures(mixed[: len(opinions)], opinions, len(mixed))
            return Checked(Fitness.UNFIT, reason + _refusal(opinions), found)
    found = fitness.figures(mixed, opinions)
    state, reason = fitness.decide(found)
    return Checked(state, reason and reason + _refusal(opinions), found)


def _refusal(opinions: Sequence[Opinion]) -> str:
    """The first error beside a question that the judge's server refused, to end a reason with. Empty if there is
    none."""
    error = next((each.error for each in opinions if each.is_refused), "")
    return f": {error}" if error else ""
