"""Which judges may speak: each is filed, checked once on the golden set that ships, and asked only if it is fit.

`Permits` belongs to the judging process. `sentence` is for consoles: it says what is wrong with the configured judge
and what to do. The sandbox's judge has been checked in advance.
"""

import asyncio
import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import ColumnElement, exists, select
from sqlmodel import Session, col

from burnish.config import BASE_NAME, SANDBOX_MODEL, Settings
from burnish.errors import SAID
from burnish.files import instance
from burnish.in_flight import in_flight
from burnish.journal import Journal, judge_checks
from burnish.journal.jobs import explain_held, release, take_lease
from burnish.journal.outage import repeat
from burnish.journal.tables import JudgeCheckRow, JudgeJob, StepRow
from burnish.judges import prompts
from burnish.judges.calibration import golden
from burnish.judges.calibration.check import Checked, check
from burnish.judges.calibration.golden import GoldenCase
from burnish.judges.judge import Judge, JudgeUnavailable, billed, identity
from burnish.judges.models.panel import Charge
from burnish.judges.verdicts.verdict import PROMPT
from burnish.records import Fitness, StepOutcome

log = structlog.get_logger(__name__)
IN_ADVANCE = Path(__file__).parent / "calibration" / "checked.sandbox.json"
"""The check of the sandbox's judge: what was checked, by digest, and the figures. `python -m
benchmarks.judging.sandbox` writes it.
"""
REMEDY = (
    "set judge.model to a stronger model, e.g. openai/gpt-5 (`burnish judges check --judge NAME` tries one), or rely "
    "on users' ratings: rated turns need no judge"
)
LOOK = 2.0
"""Seconds between two looks at what other processes have found out."""
LEASE_SECONDS = 180.0
"""Longer than the few cases between two renewals may take."""
PAUSE = 10.0
"""Seconds until a judge that did not answer is checked again."""
QUIET = 30.0
"""A check on the serving engine goes on while no client was served and no step was under way for this many seconds."""
MAX_DELAY = 600.0
"""Seconds after which such a check goes on all the same, if a turn waits for the judge."""


class Permits:
    """The judges of one process, best first, and whether each may speak. `charge` is told what a check cost."""

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        judges: Sequence[Judge],
        charge: Charge = lambda agent, model, usage: None,
    ) -> None:
        self._journal = journal
        self._charge = charge
        self._settings = settings
        self._judges = judges
        self._name = instance()
        self._states: dict[str, JudgeCheckRow] = {}
        self._silence: str | None = ""
        self._rests_until = 0.0
        self._began = self._last_busy = time.monotonic()
        self._told: tuple[str, str] | None = None  # the model that could not be checked, and why

    def may_speak(self, model: str) -> bool:
        return model in self._states and self._states[model].state == Fitness.FIT

    def silence(self) -> str | None:
        """Why no judge may be asked now. None if one may."""
        return self._silence

    def begin(self) -> None:
        """File the judges. Afterwards no verdict of a judge that is not fit counts."""
        with self._journal.write() as session:
            for judge in self._judges:
                file(session, self._settings, judge.model)
            judge_checks.settle_silenced(session)
        self._look()

    async def run_forever(self, is_stopping: Callable[[], bool], interval: float = LOOK) -> None:
        """Check the judges that were not checked, one after the other, in idle time, until `is_stopping()`."""

        async def look() -> None:
            self._look()
            if time.monotonic() >= self._rests_until:
                await self._unless(is_stopping, asyncio.create_task(self._check_next()))

        await repeat(look, is_stopping, interval, changes=self._journal.changes, due=self._due)

    def _due(self) -> float:
        """A check waits for idle time, and nothing is committed when that begins."""
        return 0.0 if any(row.state == Fitness.UNCHECKED for row in self._states.values()) else math.inf

    @staticmethod
    async def _unless(is_stopping: Callable[[], bool], running: asyncio.Task[None]) -> None:
        """Wait for a check. A check that is broken off begins anew at the next start."""
        while not running.done():
            await asyncio.wait([running], timeout=0.2)
            if is_stopping() and running.cancel():
                with suppress(asyncio.CancelledError):
                    await running
                return
        running.result()

    async def _check_next(self) -> None:
        """Check the first unchecked judge, unless another process does."""
        waiting = [each for each in self._judges if self._states[each.model].state == Fitness.UNCHECKED]
        if not waiting or not self._may_check(waiting[0].model):
            return
        judge, cases = waiting[0], golden.load(golden.shipped(self._settings.uses_sandbox))
        await self._keep(judge.model)
        if self._told is None:
            log.info("a judge is checked before it may speak", model=judge.model, cases=len(cases))
        try:
            found = await self._check(judge, cases)
        except JudgeUnavailable as error:
            self._rests_until = time.monotonic() + PAUSE
            if self._told != (told := (judge.model, str(error)[:300])):
                log.info(
                    "a judge cannot be checked yet; it is tried again", model=told[0], error=told[1].partition(SAID)[0]
                )
            self._told = told
            return
        else:
            with self._journal.write() as session:
                conclude(session, self._settings, judge.model, found.state, found.reason, found.figures.to_json())
        finally:
            self._may_check(judge.model, 0.0)
        self._told = None
        log.info("a judge was checked", model=judge.model, state=found.state, **found.figures.to_json())
        self._look()

    async def _check(self, judge: Judge, cases: Sequence[GoldenCase]) -> Checked:
        """The check, also charged if it is broken off."""
        with billed() as bill:
            try:
                return await check(judge, cases, keep=lambda: self._keep(judge.model))
            finally:
                self._charge("", judge.model, bill)

    async def _keep(self, model: str) -> None:
        """Renew the lease. Wait while the engine that the check shares with clients is busy."""
        self._may_check(model)
        while not self._is_time(model):
            await asyncio.sleep(LOOK)
            self._may_check(model)

    def _is_time(self, model: str) -> bool:
        """True if the judge is on another server, or the machine has been idle for a while, or turns wait too long."""
        if stands_for(self._settings, model) != self._settings.engine.model:
            return True
        now = time.monotonic()
        with self._journal.read() as session:
            is_learning = _exists(session, col(StepRow.outcome) == StepOutcome.OPEN)
            is_awaited = _exists(session, col(JudgeJob.state).in_(("queued", "held")))
        if is_learning or in_flight(self._settings.run_dir) != set():
            self._last_busy = now
        return now - self._last_busy >= QUIET or (is_awaited and now - self._began >= MAX_DELAY)

    def _may_check(self, model: str, seconds: float = LEASE_SECONDS) -> bool:
        """Take or renew the lease on checking `model`. With 0 seconds, give it back."""
        with self._journal.write() as session:
            return take_lease(session, f"judge check:{model}", self._name, seconds)

    def _look(self) -> None:
        """Read the judges' states. Turns that waited are given out, or learn what they wait for now."""
        with self._journal.read() as session:
            rows = judge_checks.filed(session)
            said = sentence(session, self._settings)
        self._states = {each.model: rows[_identity(each.model)] for each in self._judges}
        silence = None if any(map(self.may_speak, self._states)) else said or "no judge may speak"
        if silence == self._silence:
            return
        self._silence = silence
        with self._journal.write() as session:
            if silence is None:
                release(session, JudgeJob)
            else:
                explain_held(session, JudgeJob, silence)
        if said is not None:
            log.warning(said)


def _exists(session: Session, condition: ColumnElement[bool]) -> bool:
    return bool(session.scalar(select(exists().where(condition))))


def file(session: Session, settings: Settings, model: str) -> Fitness:
    """File the judge `model`, with each rubric in the settings. Returns its state without a rubric."""
    facts = (model, stands_for(settings, model), golden.digest(golden.shipped(settings.uses_sandbox)))
    found = _in_advance(settings, model)
    own, *others = _identities(settings, model)
    state = judge_checks.file(session, own, *facts)
    behind = [each for each in others if judge_checks.file(session, each, *facts) != state]
    if state is Fitness.UNCHECKED and found is not None:
        conclude(session, settings, model, Fitness.FIT, "", found)
        return Fitness.FIT
    if behind:  # a rubric that is new since the check
        row = judge_checks.filed(session)[own]
        judge_checks.conclude(session, behind, state, row.reason, row.figures)
    return state


def conclude(
    session: Session, settings: Settings, model: str, state: Fitness, reason: str, figures: Mapping[str, Any]
) -> None:
    """Store the outcome of the check of `model`. It holds with every rubric: the operator answers for those words."""
    judge_checks.conclude(session, _identities(settings, model), state, reason, figures)


def sentence(session: Session | None, settings: Settings) -> str | None:
    """What is wrong with the configured judges, and the remedy, in one sentence. None if the first one is fit."""
    found = trouble(session, settings)
    return None if found is None else "; ".join(found)


def trouble(session: Session | None, settings: Settings) -> tuple[str, str] | None:
    """The same in two parts: what is wrong, and what follows. Without a `session`, there is no journal yet."""
    models = [settings.judge.model or BASE_NAME, *filter(None, [settings.judge.fallback_model])]
    rows = judge_checks.filed(session) if session is not None else {}
    states = {model: _state(settings, model, rows.get(_identity(model))) for model in models}
    first = models[0]
    if states[first] is Fitness.FIT:
        return None
    if states[first] is Fitness.UNCHECKED:
        fault = (
            f"the judge {_shown(settings, first)} has not been checked yet; it is checked on {len(_cases(settings))} "
            "golden cases in idle time (`burnish judges check` does it now)"
        )
    else:
        fault = f"the judge {_shown(settings, first)} is unfit: {rows[_identity(first)].reason}"
    if Fitness.FIT in states.values():
        return fault, f"{models[1]} judges in its place"
    if states[first] is Fitness.UNCHECKED:
        return fault, "until then, turns without a user's or verifier's word wait"
    return fault, f"turns without a user's or verifier's word are not judged; {REMEDY}"


def stands_for(settings: Settings, model: str) -> str:
    """What is behind the name: the served model for names of our engine, else the server's address."""
    is_elsewhere = settings.judge.url if model == settings.judge.model else ""
    return is_elsewhere or ("" if "/" in model else settings.engine.model)


def _state(settings: Settings, model: str, row: JudgeCheckRow | None) -> Fitness:
    digest = golden.digest(golden.shipped(settings.uses_sandbox))
    if row is None or (row.stands_for, row.golden) != (stands_for(settings, model), digest):
        return Fitness.UNCHECKED if _in_advance(settings, model) is None else Fitness.FIT
    return Fitness(row.state)


def _identity(model: str) -> str:
    return identity(model, PROMPT)


def _identities(settings: Settings, model: str) -> list[str]:
    """The judge's id without a rubric, and with each one."""
    rubrics = [rubric for rubric in settings.judge.rubrics.values() if rubric.strip()]
    return list(dict.fromkeys([_identity(model), *(identity(model, PROMPT, rubric) for rubric in rubrics)]))


def _shown(settings: Settings, model: str) -> str:
    behind = stands_for(settings, model)
    return f"{model} ({Path(behind).name})" if behind and not settings.judge.url else model


def _cases(settings: Settings) -> Sequence[str]:
    return golden.shipped(settings.uses_sandbox).read_text(encoding="utf-8").splitlines()


def _in_advance(settings: Settings, model: str) -> Mapping[str, Any] | None:
    """The figures of the sandbox's judge if it is still the one that was checked, with its prompt and golden set."""
    if model != BASE_NAME or not settings.uses_sandbox or settings.judge.url:
        return None
    known = json.loads(IN_ADVANCE.read_text(encoding="utf-8"))
    return known["figures"] if known["of"] == sandbox_judge() else None


@cache
def sandbox_judge() -> dict[str, str]:
    """The digests of everything that the sandbox's judge rests on."""
    weights = hashlib.sha256((SANDBOX_MODEL / "model.safetensors").read_bytes()).hexdigest()
    return {"weights": weights, "prompt": prompts.digest(PROMPT), "golden": golden.digest(golden.SHIPPED)}
