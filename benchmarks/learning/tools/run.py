"""One run of one arm with one seed: examine, let sessions be had and learned from, examine on the way, add up."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.learning import loop, stack
from benchmarks.learning.client import N_AT_ONCE
from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.queue import Tell
from benchmarks.learning.results import Result
from benchmarks.learning.stack import Stack
from benchmarks.learning.style.exams import Exams
from benchmarks.learning.tools import silent, world
from benchmarks.learning.tools.arms import Arm
from benchmarks.learning.tools.hinting import Hinting
from benchmarks.learning.tools.session import Played, play
from benchmarks.learning.tools.update import Counts, hints_of, odd_rewards, update
from burnish.config import BASE_NAME
from burnish.errors import BurnishError

MOST_LOST = 0.05
"""Share of sessions broken off beyond which a run tells nothing of learning."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long a run is; the world's length unless a test wants a short one."""

    n_sessions: int = world.N_SESSIONS
    milestones: Sequence[int] = world.MILESTONES
    n_exam: int = world.N_EXAM


WHOLE = Plan()


async def run(
    arm: Arm, seed: int, engine: SharedEngine, folder: Path, cache: Path, tell: Tell, plan: Plan = WHOLE
) -> Result:
    """The whole run in a fresh `folder`.

    Raises BurnishError where its parts do not start, too many sessions are broken off, or the learner was given other
    rewards than the arm stands for.
    """
    began = time.monotonic()
    agent = stack.agent_name(arm.name, seed)
    flags = arm.flags(seed)
    async with AsyncExitStack() as held:
        where = {"judge.url": await held.enter_async_context(silent.running())} if arm.has_silent_judge else {}
        running = await held.enter_async_context(stack.running(folder, engine, agent, flags | where, cache))
        works = world.truth(seed)
        hinting = Hinting(seed, works) if arm.has_hints else None
        examined = await examine(running, works, plan.n_exam)
        scores, waited, n_late = {0: score(examined)}, 0.0, 0
        had: list[Played] = []
        while len(had) < plan.n_sessions:
            first = len(had)
            steps = world.sessions(seed, min(world.ROUND, plan.n_sessions - first), first)
            had += await asyncio.gather(
                *(
                    play(running.client, agent, f"s{first + i}", each, works, may_train=True, hinting=hinting)
                    for i, each in enumerate(steps)
                )
            )
            n_broken = sum(not each.is_whole for each in had)
            if n_broken > len(had) * MOST_LOST:
                raise BurnishError(f"{n_broken} of {len(had)} sessions were broken off: {running.client.failures[-1]}")
            paused = time.monotonic()
            counts = Counts(
                n_turns=sum(each.n_turns for each in had),
                n_sessions=sum(each.n_turns > 0 for each in had),
                n_comments=hinting.n_said if hinting else 0,
            )
            n_late += not await update(running, counts)
            waited += time.monotonic() - paused
            tell(len(steps))
            if len(had) in plan.milestones:
                examined = await examine(running, works, plan.n_exam, f"after {len(had)}")
                scores[len(had)] = score(examined)
                tell(0, f"score {scores[len(had)]:.2f} after {len(had)}")
        n_odd, n_rewards = odd_rewards(running)
        if n_rewards and (n_odd > 0) != arm.has_steps:
            raise BurnishError(f"{n_odd} of {n_rewards} rewards hold a step's own word; the arm is {arm.what!r}")
        kept_answers, of_base = await Exams(running.client, agent, BASE_NAME, seed).retention()
        figures = {
            "success_trained": sum(each.is_success for each in had) / len(had),
            "told_truly": sum(sum(each.told) for each in examined) / (len(examined) * world.N_STEPS),
            "retention": kept_answers / of_base,
            "n_rewards": n_rewards,
            "n_step_rewards": n_odd,
            **hints_of(running),
            **loop.costs(running),
            "n_sessions": len(had),
            "n_requests": running.client.n_requests,
            "n_failed": len(running.client.failures),
            "n_late": n_late,
            "seconds_waited": round(waited, 1),
            "seconds": round(time.monotonic() - began, 1),
        }
        (folder / "failures.txt").write_text("".join(f"{each}\n" for each in running.client.failures), encoding="utf-8")
    return Result(arm.name, seed, flags, scores, figures)


async def examine(running: Stack, works: world.Truth, n: int, when: str = "before") -> list[Played]:
    """The first `n` of the held-out sessions, played with the live version, out of training."""
    slots = asyncio.Semaphore(N_AT_ONCE)

    async def one(i: int, steps: Sequence[world.Step]) -> Played:
        async with slots:
            return await play(running.client, running.agent, f"exam {i} {when}", steps, works, may_train=False)

    return list(await asyncio.gather(*(one(i, steps) for i, steps in enumerate(world.exam()[:n]))))


def score(examined: Sequence[Played]) -> float:
    """The share of successes, 0 to 1; a session that was broken off is none."""
    return sum(each.is_success for each in examined) / len(examined)
