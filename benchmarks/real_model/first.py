"""The first version with defaults only: how many rated replies and minutes it takes until one is live.

As a new user would do it: a fresh state directory, the model's directory, nothing else set. The users and their pauses
are the demo's (sandbox/demo/worlds.py).
"""

import asyncio
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlmodel import col

from benchmarks.adapters.stand import free_port
from benchmarks.learning.bounds import estimate
from benchmarks.learning.columns import ByArm, BySeed, Measured, counted, scores
from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.part import Part, Runs, curve
from benchmarks.learning.queue import Tell
from benchmarks.learning.results import Result
from benchmarks.real_model import model
from benchmarks.real_model.english import world
from benchmarks.real_model.english.arms import Arm
from benchmarks.real_model.tables import Report, at_most
from burnish import config
from burnish.config import Settings
from burnish.errors import BurnishError
from burnish.journal import Journal
from burnish.journal.tables import VersionRow
from burnish.processes.parts import gateway_url
from burnish.records import VersionState
from burnish.sandbox.demo import facts, stack, worlds
from burnish.sandbox.demo.traffic import Log, Pauses, Traffic

ARM = "defaults"


class Defaults(Arm):
    """Nothing is set but the seed."""

    def flags(self, seed: int) -> dict[str, Any]:
        return {"learner.recipe.seed": seed}


ARMS = {ARM: Defaults(ARM, "nothing is set but the model")}
N_REPLIES, PATIENCE = 512, 1800.0
"""The replies and the seconds after which a run has failed."""


async def play(arm: Arm, seed: int, engine: SharedEngine, folder: Path, cache: Path, tell: Tell) -> Result:
    """Start everything, let users talk until a version is live. Raises BurnishError if none is."""
    settings = _fresh(folder, {**arm.flags(seed), "engine.model": engine.model})
    began, key, talkers, log = time.time(), stack.make_user_key(settings), worlds.english(), Log()
    journal, name = Journal.open(settings.journal_url), settings.agent.name
    try:
        async with stack.running(settings, folder / "parts.log"):
            ready = time.time()
            traffic = Traffic(gateway_url(settings), key, name, log, talkers)
            users = [talkers.make_user(seed, each) for each in world.NAMES]
            pauses = Pauses(talkers, seed, lambda: facts.pulse(journal, name).has_step(settings.recipe.min_rows))
            talking = asyncio.create_task(traffic.talk(users, N_REPLIES, pauses.wait))
            try:
                live = await _first_live(journal, name)
            finally:
                talking.cancel()
                await asyncio.gather(talking, return_exceptions=True)
                await traffic.close()
    finally:
        journal.close()
    tell(1)
    figures = {
        "minutes": (live - began) / 60,
        "minutes_serving": (live - ready) / 60,
        "n_failed": float(len(log.failures)),
        "seconds": round(time.time() - began, 1),
    }
    return Result(arm.name, seed, arm.flags(seed), {1: float(sum(turn.at <= live for turn in log.turns))}, figures)


def _fresh(folder: Path, flags: Mapping[str, Any]) -> Settings:
    """The settings of a fresh state directory in `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    places = {"state_dir": str(folder), "engine.port": free_port(), "gateway.port": free_port()}
    return config.load(flags={**flags, **places})


async def _first_live(journal: Journal, agent: str) -> float:
    """Wait for the first version that goes live. Returns the time."""
    query = select(col(VersionRow.decided_at)).where(
        col(VersionRow.agent) == agent, col(VersionRow.state) == VersionState.LIVE
    )
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with journal.read() as session:
            if (found := session.scalars(query).first()) is not None:
                return found
        await asyncio.sleep(0.5)
    raise BurnishError(f"expected a version to go live within {PATIENCE:.0f} s, got none; the parts' log says why")


def columns(results: ByArm, arm: str) -> dict[str, BySeed]:
    """Replies and minutes until the first version is live. `minutes_serving` begins when the first request can."""
    keys = ("minutes", "minutes_serving", "n_failed", "seconds")
    return {"replies": scores(results, arm, 1)} | {key: counted(results, arm, key) for key in keys}


def barred(results: ByArm) -> dict[str, Measured]:
    """Means over the runs."""
    keys = {"replies_to_first_version": "replies", "minutes_to_first_version": "minutes"}
    found = {key: list(columns(results, ARM)[name].values()) for key, name in keys.items()}
    return {key: Measured(estimate(values).mean, len(values)) for key, values in found.items() if values}


BARS = (
    at_most("rated replies until the first version is live", "replies_to_first_version", 48.0),
    at_most("minutes from the start until then", "minutes_to_first_version", 6.0),
)
REPORT = Report(
    "The first version, SmolLM2-135M-Instruct, defaults only",
    ARMS,
    columns,
    {"until the first version is live": ("replies", "minutes", "minutes_serving", "n_failed", "seconds")},
    barred,
    BARS,
    n_min=1,
)
PART = Part(
    "first", world.FILES, ARMS, tuple(ARMS), 1, play, curve, REPORT.tables(),
    under=model.UNDER, runs=Runs.APART,
)  # fmt: skip
