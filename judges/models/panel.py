"""The judges of one process, best first, each with a circuit breaker. What they are asked is charged to an agent.

A judge that has failed several times in a row is not asked for a while, so that not every turn waits for its time-out.
Then one turn tries it again. The last judge is always asked: the worker's own pauses protect it.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from burnish.errors import SAID
from burnish.judges.judge import Judge, JudgeRefused, JudgeUnavailable, Usage, billed

DEADLINE = 60.0
"""Seconds for all votes of a turn by one judge. After that it counts as failed."""
FAILURES = 3
REST = 30.0
"""Seconds."""
Charge = Callable[[str, str, Usage], None]
"""Takes an agent, a judge's model, and what one question cost."""
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers, and the model that gave them: the verdict's identity."""

    model: str
    texts: Sequence[str]


class Breaker:
    """A circuit breaker: open for `REST` seconds after `FAILURES` failures in a row, then half open for one request."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._n_failures = 0
        self._open_until = 0.0

    def may_ask(self) -> bool:
        """True if the judge may be asked now. An open breaker lets one request through when its time is over."""
        if self._n_failures < FAILURES:
            return True
        if self._clock() < self._open_until:
            return False
        self._open_until = self._clock() + REST
        return True

    def note(self, *, is_good: bool) -> bool:
        """Record how a request ended. True if that has just opened the breaker."""
        self._n_failures = 0 if is_good else self._n_failures + 1
        if self._n_failures == FAILURES:
            self._open_until = self._clock() + REST
            return True
        return False


class Panel:
    """`judges` in the order in which they are asked. `deadline` is the time for one of them to answer, in seconds. Only
    models that `may_speak` are asked. `charge` is told what each question cost.
    """

    def __init__(
        self,
        judges: Sequence[Judge],
        deadline: float = DEADLINE,
        clock: Callable[[], float] = time.monotonic,
        *,
        may_speak: Callable[[str], bool] = lambda model: True,
        charge: Charge = lambda agent, model, usage: None,
    ) -> None:
        assert judges, "a panel has at least one judge"
        self._may_speak = may_speak
        self._charge = charge
        self._judges = [(judge, Breaker(clock)) for judge in judges]
        self._deadline = deadline

    @property
    def patience(self) -> float:
        """Seconds after which all of them have used up their time."""
        return len(self._judges) * self._deadline

    async def ask(self, messages: Sequence[Mapping[str, str]], n: int, agent: str = "") -> Answers:
        """`n` votes of the first judge that answers, about a turn of `agent`. Raises JudgeUnavailable, with everyone's
        reason, if none does, and JudgeRefused if all refuse the question.
        """
        fit = [(judge, breaker) for judge, breaker in self._judges if self._may_speak(judge.model)]
        if not fit:
            raise JudgeUnavailable("no judge is fit to speak")
        reasons, n_refused = [], 0
        last = fit[-1][0]
        for judge, breaker in fit:
            if judge is not last and not breaker.may_ask():
                reasons.append(f"{judge.model}: not asked, its circuit breaker is open after {FAILURES} failures")
                continue
            try:
                texts = await self._answers(judge, messages, n, agent)
            except (JudgeUnavailable, TimeoutError) as error:
                reason = str(error) if isinstance(error, JudgeUnavailable) else f"no answer within {self._deadline:g} s"
                reasons.append(f"{judge.model}: {reason}")
                if isinstance(error, JudgeRefused):  # its server answers
                    breaker.note(is_good=True)
                    n_refused += 1
                    continue
                if breaker.note(is_good=False) and judge is not last:
                    log.warning(
                        "a judge's circuit breaker is open",
                        model=judge.model,
                        seconds=REST,
                        error=reason.partition(SAID)[0],
                    )
                continue
            breaker.note(is_good=True)
            return Answers(judge.model, texts)
        raise (JudgeRefused if n_refused == len(fit) else JudgeUnavailable)("; ".join(reasons))

    async def _answers(self, judge: Judge, messages: Sequence[Mapping[str, str]], n: int, agent: str) -> Sequence[str]:
        """The judge's answers in time. A question without an answer is charged as well."""
        began = time.monotonic()
        with billed() as bill:
            try:
                async with asyncio.timeout(self._deadline):
                    texts = await judge.answers(messages, n)
                bill.n_votes += len(texts)
                return texts
            finally:
                bill.seconds += time.monotonic() - began
                self._charge(agent, judge.model, bill)

    async def close(self) -> None:
        for judge, _ in self._judges:
            await judge.close()
