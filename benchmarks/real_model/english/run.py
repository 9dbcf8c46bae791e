"""One run of one arm with one seed: exam, talk while it learns, exams at the milestones, general abilities."""

import time
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import select
from sqlmodel import col

from benchmarks.learning import loop, stack
from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.queue import Tell
from benchmarks.learning.results import Result
from benchmarks.learning.stack import Stack
from benchmarks.learning.style.run import Plan, converse
from benchmarks.learning.style.talk import Talk
from benchmarks.real_model.english import world
from benchmarks.real_model.english.arms import PRODUCT, Arm
from benchmarks.real_model.english.notes import EnglishNotes
from benchmarks.real_model.exams import Exams
from burnish.journal.tables import StepRow
from burnish.sandbox.english import questions, style

WHOLE = Plan(world.N_INTERACTIONS, world.MILESTONES)
CUT = {n: Plan(n, [at for at in world.MILESTONES if at <= n], is_cut=True) for n in world.MILESTONES[1:-1]}
"""Runs that end early, by their number of interactions."""
LENGTHS = ("step_kl", "step_kl_target")


async def play(
    arm: Arm, seed: int, engine: SharedEngine, folder: Path, cache: Path, tell: Tell, plan: Plan = WHOLE
) -> Result:
    """Do the whole run in a fresh `folder`.

    Raises BurnishError if its parts do not start or too many turns are lost.
    """
    began, flags, agent = time.monotonic(), arm.flags(seed), stack.agent_name(arm.name, seed)
    async with stack.running(folder, engine, agent, flags, cache) as running:
        notes = EnglishNotes() if arm.has_notes else None
        talk, exams = talk_of(running, seed, notes), Exams(running, notes)
        seen: dict[int, dict[str, float]] = {}

        async def examine(n: int) -> float:
            seen[n] = style.breakdown(questions.heldout(), await exams.replies())
            return seen[n]["score"]

        # the product is compared with what the wishes in a prompt achieve
        figures = {"score_prompted": await exams.prompted()} if arm.name == PRODUCT else {}
        await examine(0)
        waits = await converse(running, talk, plan, examine, tell, world.PATIENCE)
        abilities = await exams.abilities()
        curves = by_interactions(seen) | by_interactions({plan.n_interactions: abilities}) | lengths(running)
        figures |= costs(running, waits.n_late)
        if not plan.is_cut:
            figures |= {"seconds_waited": round(waits.seconds, 1), "seconds": round(time.monotonic() - began, 1)}
    return Result(arm.name, seed, flags, curves.pop("score"), figures, curves)


def talk_of(running: Stack, seed: int, notes: EnglishNotes | None = None) -> Talk:
    """The users of a run, who want the house style."""
    return Talk(
        running.client,
        running.agent,
        world.people(seed),
        notes,
        temperature=world.TEMPERATURE,
        max_tokens=world.MAX_TOKENS,
    )


def by_interactions(seen: Mapping[int, Mapping[str, float]]) -> dict[str, dict[int, float]]:
    """What was seen at each number of interactions, as a curve for each name."""
    names = dict.fromkeys(name for each in seen.values() for name in each)
    return {name: {n: each[name] for n, each in seen.items() if name in each} for name in names}


def costs(running: Stack, n_late: int) -> dict[str, float]:
    """The costs of a run and its failures."""
    client = running.client
    return {**loop.costs(running), "n_requests": client.n_requests, "n_failed": len(client.failures), "n_late": n_late}


def lengths(running: Stack) -> dict[str, dict[int, float]]:
    """The KL of every step and its target, by the version that it made or would have made."""
    with running.journal.read() as session:
        steps = session.scalars(
            select(StepRow).where(col(StepRow.agent) == running.agent).order_by(col(StepRow.version))
        )
        found = {step.version: step.metrics for step in steps if LENGTHS[0] in step.metrics}
    return {name: {version: metrics[name] for version, metrics in found.items()} for name in LENGTHS}
