"""The seconds of a version's trial, from its announcement to the verdict: on an idle machine and beside eight streams.

The versions are the learner's own, from rated replies. The base's answers and the judge's check are over before. While
a version is on trial the learner waits, and so do the users.
"""

import asyncio
import time
from contextlib import suppress
from pathlib import Path

from sqlalchemy import select
from sqlmodel import col

from benchmarks.learning import loop, stack
from benchmarks.learning.bounds import estimate
from benchmarks.learning.columns import ByArm, BySeed, Measured, counted, scores
from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.part import Part, Runs, curve
from benchmarks.learning.queue import Tell
from benchmarks.learning.results import Result
from benchmarks.learning.stack import Stack
from benchmarks.learning.style import world as rounds
from benchmarks.learning.style.run import Plan, converse
from benchmarks.real_model import model
from benchmarks.real_model.english import world
from benchmarks.real_model.english.arms import Arm
from benchmarks.real_model.english.run import costs, talk_of
from benchmarks.real_model.tables import Report, at_most
from burnish.adapters.evidence.base_answers import BaseRecord
from burnish.errors import BurnishError
from burnish.journal import judge_checks
from burnish.journal.tables import VersionRow
from burnish.records import Fitness, VersionState
from burnish.sandbox.english import questions

IDLE, BUSY = "idle", "busy"
ARMS = {arm.name: arm for arm in (Arm(IDLE, "nobody is served"), Arm(BUSY, "eight clients ask without a pause"))}
N_CLIENTS, N_VERSIONS = 8, 3
N = N_VERSIONS * rounds.ROUND
LOOK = 0.1


async def play(arm: Arm, seed: int, engine: SharedEngine, folder: Path, cache: Path, tell: Tell) -> Result:
    """Let users teach some versions and time their trials. Raises BurnishError if no version was tried."""
    began, flags, agent = time.monotonic(), arm.flags(seed), stack.agent_name(arm.name, seed)
    async with stack.running(folder, engine, agent, flags, cache) as running:
        await _until_quiet(running)

        async def examine(n: int) -> float:
            return 0.0  # nothing is scored here

        serving = asyncio.create_task(_serve_beside(running)) if arm.name == BUSY else None
        waits = await converse(running, talk_of(running, seed), Plan(N, ()), examine, tell, world.PATIENCE)
        if serving is not None:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving
        with running.journal.read() as session:
            rows = session.scalars(select(VersionRow).where(col(VersionRow.agent) == agent)).all()
            took = {row.version: row.decided_at - row.created_at for row in rows if row.decided_at is not None}
        if not took:
            raise BurnishError("expected a version on trial, got none; the parts' log says why no step was taken")
        figures = costs(running, waits.n_late) | {"n_tried": len(took), "seconds": round(time.monotonic() - began, 1)}
    return Result(arm.name, seed, flags, {N: sum(took.values()) / len(took)}, figures, {"trial": took})


async def _until_quiet(running: Stack) -> None:
    """Wait until the base has answered the gate's prompts and its fitness to judge is known."""
    deadline = time.monotonic() + world.PATIENCE
    while True:
        with running.journal.read() as session:
            checks = judge_checks.filed(session).values()
        is_checked = checks and all(row.state != Fitness.UNCHECKED for row in checks)
        lacks = BaseRecord.of(running.settings).standing()
        waits_for = lacks.sentence if lacks is not None else "" if is_checked else "the judge is being checked"
        if not waits_for:
            return
        if time.monotonic() > deadline:
            raise BurnishError(f"the machine did not become quiet within {world.PATIENCE:.0f} s: {waits_for}")
        await asyncio.sleep(1.0)


async def _serve_beside(running: Stack) -> None:
    """Ask as eight clients while a version is on trial, out of training."""
    is_on_trial = asyncio.Event()

    async def ask(place: int) -> None:
        asked, n = questions.training(), place
        while True:
            await is_on_trial.wait()
            await running.client.ask(
                running.agent,
                asked[n % len(asked)].messages,
                temperature=world.TEMPERATURE,
                max_tokens=world.MAX_TOKENS,
                may_train=False,
            )
            n += N_CLIENTS

    async with asyncio.TaskGroup() as group:
        for place in range(N_CLIENTS):
            group.create_task(ask(place))
        while True:
            n = await asyncio.to_thread(loop.count_versions, running, VersionState.CANDIDATE)
            (is_on_trial.set if n else is_on_trial.clear)()
            await asyncio.sleep(LOOK)


def columns(results: ByArm, arm: str) -> dict[str, BySeed]:
    """The mean seconds of a trial, and the run's counts."""
    keys = ("n_tried", "n_refused", "n_failed", "seconds")
    return {"trial_s": scores(results, arm, N)} | {key: counted(results, arm, key) for key in keys}


def barred(results: ByArm) -> dict[str, Measured]:
    """Means over the versions of each run and over the runs."""
    keys = {"trial_s": scores(results, IDLE, N), "trial_busy_s": scores(results, BUSY, N)}
    return {key: Measured(estimate(list(each.values())).mean, len(each)) for key, each in keys.items() if each}


BARS = (
    at_most("seconds of a trial, idle machine", "trial_s", 20.0),
    at_most("seconds of a trial, eight streams", "trial_busy_s", 60.0),
)
REPORT = Report(
    "Trials, SmolLM2-135M-Instruct",
    ARMS,
    columns,
    {"seconds from announcement to verdict": ("trial_s", "n_tried", "n_refused", "n_failed", "seconds")},
    barred,
    BARS,
    n_min=1,
)
PART = Part(
    "trial", world.FILES, ARMS, tuple(ARMS), N, play, curve, REPORT.tables(),
    under=model.UNDER, runs=Runs.ALONE,
)  # fmt: skip
