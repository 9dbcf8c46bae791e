"""One run of one arm with one seed: exam, sessions with updates, exams at the milestones, final figures."""

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
"""The largest share of broken-off sessions. With more of them a run says nothing about learning."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long a run is: the world's length unless a test wants a short one."""

    n_sessions: int = world.N_SESSIONS
    milestones: Sequence[int] = world.MILESTONES
    n_exam: int = world.N_EXAM


WHOLE = Plan()


async def run(
    arm: Arm, seed: int, engine: SharedEngine, folder: Path, cache: Path, tell: Tell, plan: Plan = WHOLE
) -> Result:
    """Do the whole run in a fresh `folder`.

    Raises BurnishError if its parts do not start, too many sessions are broken off, or the learner got other rewards
    than the arm's.
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
        played: list[Played] = []
        while len(played) < plan.n_sessions:
            first = len(played)
            steps = world.sessions(seed, min(world.ROUND, plan.n_sessions - first), first)
            played += await asyncio.gather(
                *(
                    play(running.client, agent, f"s{first + i}", each, works, may_train=True, hinting=hinting)
                    for i, each in enumerate(steps)
                )
            )
            n_broken = sum(not each.is_whole for each in played)
            if n_broken > len(played) * MOST_LOST:
                raise BurnishError(
                    f"expected at most {MOST_LOST:.0%} broken-off sessions, got {n_broken} of {len(played)}; "
                    f"the last failure: {running.client.failures[-1]}"
                )
            paused = time.monotonic()
            counts = Counts(
                n_turns=sum(each.n_turns for each in played),
                n_sessions=sum(each.n_turns > 0 for each in played),
                n_comments=hinting.n_said if hinting else 0,
            )
            n_late += not await update(running, counts)
            waited += time.monotonic() - paused
            tell(len(steps))
            if len(played) in plan.milestones:
                examined = await examine(running, works, plan.n_exam, f"after {len(played)}")
                scores[len(played)] = score(examined)
                tell(0, f"score {scores[len(played)]:.2f} after {len(played)}")
        n_odd, n_rewards = odd_rewards(running)
        if n_rewards and (n_odd > 0) != arm.has_steps:
            raise BurnishError(
                f"{n_odd} of {n_rewards} rewards hold a step's own exit code, which does not fit the arm {arm.what!r}"
            )
        kept_answers, of_base = await Exams(running.client, agent, BASE_NAME, seed).retention()
        figures = {
            "success_trained": sum(each.is_success for each in played) / len(played),
            "told_truly": sum(sum(each.answered_truly) for each in examined) / (len(examined) * world.N_STEPS),
            "retention": kept_answers / of_base,
            "n_rewards": n_rewards,
            "n_step_rewards": n_odd,
            **hints_of(running),
            **loop.costs(running),
            "n_sessions": len(played),
            "n_requests": running.client.n_requests,
            "n_failed": len(running.client.failures),
            "n_late": n_late,
            "seconds_waited": round(waited, 1),
            "seconds": round(time.monotonic() - began, 1),
        }
        (folder / "failures.txt").write_text("".join(f"{each}\n" for each in running.client.failures), encoding="utf-8")
    return Result(arm.name, seed, flags, scores, figures)


async def examine(running: Stack, works: world.Truth, n: int, when: str = "before") -> list[Played]:
    """The first `n` held-out sessions, played with the live version, out of training."""
    slots = asyncio.Semaphore(N_AT_ONCE)

    async def one(i: int, steps: Sequence[world.Step]) -> Played:
        async with slots:
            return await play(running.client, running.agent, f"exam {i} {when}", steps, works, may_train=False)

    return list(await asyncio.gather(*(one(i, steps) for i, steps in enumerate(world.exam()[:n]))))


def score(examined: Sequence[Played]) -> float:
    """The share of successes, 0 to 1. A broken-off session is no success."""
    return sum(each.is_success for each in examined) / len(examined)
