"""Calibration: a judge's answers to turns with known verdicts, and their cost.

An abstention and a ballot that cannot be parsed are no verdicts. Accuracy, κ and the rest are over the verdicts given.
The shares of abstentions and failures are reported beside them.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from burnish.judges import prefilter
from burnish.judges.calibration import agreement, golden
from burnish.judges.calibration.golden import SCORES, GoldenCase
from burnish.judges.injection.counterfactual import examine
from burnish.judges.judge import Judge, JudgeRefused, JudgeUnavailable, Usage, identity
from burnish.judges.models.panel import DEADLINE, Panel
from burnish.judges.verdicts.ballot import MIN_AGREEMENT, Result, VoidBallot
from burnish.judges.verdicts.case import Case
from burnish.judges.verdicts.verdict import PROMPT

ABSTAINED, FAILED = "abstained", "failed"


@dataclass(frozen=True, slots=True)
class Terms:
    """How each turn is judged: votes, turns side by side, share of the votes that must agree, seconds for all of
    them."""

    votes: int
    concurrency: int
    min_agreement: float = MIN_AGREEMENT
    deadline: float = DEADLINE


@dataclass(frozen=True, slots=True)
class Opinion:
    """A judge's opinion on one turn: a result by `judge_id`, or an error (`judge_id` is then empty). `is_away`: no
    server answered. `is_refused`: it refused the question.
    """

    judge_id: str
    result: Result | None
    error: str = ""
    is_away: bool = False
    is_refused: bool = False

    @property
    def outcome(self) -> int | str:
        """The score, `ABSTAINED` or `FAILED`."""
        if self.result is None:
            return FAILED
        return ABSTAINED if self.result.score is None else self.result.score


@dataclass(frozen=True, slots=True)
class Calibration:
    """A judge's opinions on golden cases, in their order, and their cost. `seconds` run from the first question to the
    last answer.
    """

    model: str
    cases: Sequence[GoldenCase]
    opinions: Sequence[Opinion]
    n_votes_asked: int
    usage: Usage
    seconds: float

    @property
    def figures(self) -> dict[str, Any]:
        """All figures by name. None for a figure without data."""
        paired = list(zip(self.cases, self.opinions, strict=True))
        given = [
            (case.score, o.result.score, o.result.confidence)
            for case, o in paired
            if o.result and o.result.score is not None
        ]
        n_right = sum(right == score for right, score, _ in given)
        not_good = [score for right, score, _ in given if right != 1]
        interval = agreement.wilson(n_right, len(given))
        outcomes = Counter(opinion.outcome for opinion in self.opinions)
        hinted = [
            (o.result.hint is not None) == case.has_hint for case, o in paired if o.result and case.has_hint is not None
        ]
        n_failed_votes = sum(o.result.n_failed if o.result else 0 for o in self.opinions)
        n_votes = sum(len(o.result.votes) if o.result else 0 for o in self.opinions)
        return {
            "cases": len(paired),
            "verdicts": len(given),
            "accuracy": _share(n_right, len(given)),
            "accuracy_interval": interval,
            "right_of_all": _share(n_right, len(paired)),
            "false_positive_rate": _share(sum(score == 1 for score in not_good), len(not_good)),
            "kappa": agreement.kappa([(right, score) for right, score, _ in given]),
            "hint_agreement": _share(sum(hinted), len(hinted)),
            "calibration_error": agreement.calibration_error(
                (confidence, right == score) for right, score, confidence in given
            ),
            "abstained": _share(outcomes[ABSTAINED], len(paired)),
            "failed": _share(outcomes[FAILED], len(paired)),
            "by_rule": sum(o.judge_id == prefilter.identity() for o in self.opinions),
            "votes_asked": self.n_votes_asked,
            "votes_read": n_votes,
            "votes_failed": n_failed_votes,
            "requests": self.usage.n_requests,
            "prompt_tokens": self.usage.n_prompt_tokens,
            "answer_tokens": self.usage.n_answer_tokens,
            "seconds": round(self.seconds, 3),
            "votes_per_s": round(n_votes / self.seconds, 2) if self.seconds else None,
        }

    @property
    def confusion(self) -> dict[int, dict[int | str, int]]:
        """How many cases of each right score (rows: +1, 0, -1) got which outcome."""
        table: dict[int, dict[int | str, int]] = {
            right: dict.fromkeys((*SCORES, ABSTAINED, FAILED), 0) for right in SCORES
        }
        for case, opinion in zip(self.cases, self.opinions, strict=True):
            table[case.score][opinion.outcome] += 1
        return table

    @property
    def wrong(self) -> list[tuple[int, GoldenCase, Opinion]]:
        """The cases without the right verdict, each with its number from 1."""
        paired = zip(self.cases, self.opinions, strict=True)
        return [
            (number, case, opinion) for number, (case, opinion) in enumerate(paired, 1) if opinion.outcome != case.score
        ]


async def calibrate(
    judge: Judge,
    cases: Sequence[GoldenCase],
    terms: Terms,
    progress: Callable[[], None] = lambda: None,
    rubric: str = "",
) -> Calibration:
    """Ask about every case, with `rubric` after the prompt. `progress` is called after each.

    Raises JudgeUnavailable if the judge does not answer the first question. A later question without an answer counts
    as failed.
    """
    questions = [golden.question(case, rubric) for case in cases]
    started = time.perf_counter()
    opinions = await opinions_on(judge, questions, terms, progress)
    n_asked = terms.votes * sum(question.n_readings for question in questions)
    return Calibration(judge.model, cases, opinions, n_asked, judge.usage, time.perf_counter() - started)


async def opinions_on(
    judge: Judge, questions: Sequence[Case], terms: Terms, progress: Callable[[], None] = lambda: None
) -> list[Opinion]:
    """The judge's opinion on each, in order. Raises JudgeUnavailable as `calibrate` does."""
    panel, slots = Panel([judge], terms.deadline), asyncio.Semaphore(terms.concurrency)
    found: dict[int, Opinion] = {}

    async def ask(number: int) -> Opinion:
        async with slots:
            found[number] = await _opinion(panel, questions[number], terms)
        progress()
        return found[number]

    # The first turn is asked alone, so that an unavailable judge is one error and not one for every turn.
    first = next((number for number, question in enumerate(questions) if question.rule is None), None)
    if first is not None and (opinion := await ask(first)).is_away:
        raise JudgeUnavailable(
            f"{opinion.error}; check that it is running and that judge.model, judge.url and judge.api_key are right"
        )
    await asyncio.gather(*(ask(number) for number in range(len(questions)) if number != first))
    return [found[number] for number in range(len(questions))]


async def _opinion(panel: Panel, question: Case, terms: Terms) -> Opinion:
    if question.rule is not None:
        return Opinion(prefilter.identity(), Result(-1, 1.0, None, (), 0, reason=question.rule))
    try:
        model, result = await examine(panel, question, terms.votes, terms.min_agreement)
    except JudgeUnavailable as error:
        is_refused = isinstance(error, JudgeRefused)
        return Opinion("", None, str(error), is_away=not is_refused, is_refused=is_refused)
    except VoidBallot as error:
        return Opinion("", None, str(error))
    return Opinion(identity(model, PROMPT, question.rubric), result)


def _share(n: int, of: int) -> float | None:
    return n / of if of else None
