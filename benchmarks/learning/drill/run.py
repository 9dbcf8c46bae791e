"""One run of the drill: rounds of talk, each followed by the decision on due candidates and a look at the scores."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.learning import loop, stack
from benchmarks.learning.drill import state, world
from benchmarks.learning.drill.arms import Arm
from benchmarks.learning.drill.attackers import Crowd
from benchmarks.learning.drill.looks import Look, Looks
from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.queue import Tell
from benchmarks.learning.results import Result
from benchmarks.learning.style.exams import Exams
from benchmarks.learning.style.run import MOST_LOST
from burnish.config import BASE_NAME
from burnish.errors import BurnishError


async def play(
    arm: Arm,
    seed: int,
    engine: SharedEngine,
    folder: Path,
    cache: Path,
    tell: Tell,
    n_interactions: int = world.N_INTERACTIONS,
) -> Result:
    """Do the whole run in a fresh `folder`.

    Raises BurnishError if its parts do not start or too many turns are lost.
    """
    began = time.monotonic()
    agent = stack.agent_name(arm.name, seed)
    flags = arm.flags(seed)
    async with stack.running(folder, engine, agent, flags | _acceptance(arm, folder), cache) as running:
        talk = Crowd(running, seed, arm.share, arm.attack)
        exams, looks = Exams(running.client, agent, BASE_NAME, seed), Looks(running, engine)
        try:
            seen = {0: await looks.look(state.read(running))}
            n_late = n_released = n_resumed = n_asked = 0
            while n_asked < n_interactions:
                n_round = min(world.ROUND, n_interactions - n_asked)
                await talk.round(n_round)
                n_asked += n_round
                if n_asked - talk.n_had > n_asked * MOST_LOST:
                    raise BurnishError(
                        f"expected at most {MOST_LOST:.0%} of the turns without a reply, "
                        f"got {n_asked - talk.n_had} of {n_asked}; the last failure: {talk.failures[-1]}"
                    )
                n_late += not await loop.catch_up(running, talk.n_had, heeds_holds=True)
                await state.settle(running)
                seen[n_asked] = await looks.look(await asyncio.to_thread(state.read, running))
                was_held, was_paused = await asyncio.to_thread(loop.end_hold_and_resume, running)
                n_released, n_resumed = n_released + was_held, n_resumed + was_paused
                tell(n_round, _progress(n_asked, seen[n_asked]))
        finally:
            await looks.close()
            await talk.close()
        kept_answers, of_base = await exams.retention()
        figures = {
            "retention": kept_answers / of_base,
            **await asyncio.to_thread(state.counts, running),
            "n_released": n_released,
            "n_resumed": n_resumed,
            "n_interactions": talk.n_had,
            "n_requests": talk.n_requests,
            "n_failed": len(talk.failures),
            "n_late": n_late,
            "seconds": round(time.monotonic() - began, 1),
        }
        (folder / "failures.txt").write_text("".join(f"{each}\n" for each in talk.failures), encoding="utf-8")
    curves = {
        "learner": _curve(seen, lambda look: look.learner),
        "once": _curve(seen, lambda look: look.once),
        "live": _curve(seen, lambda look: float(look.live)),
    }
    return Result(arm.name, seed, flags, _curve(seen, lambda look: look.served), figures, curves)


def _acceptance(arm: Arm, folder: Path) -> dict[str, str]:
    """Write the operator's prompts to a file beside `folder` if the arm has them. Returns the setting for the file."""
    if not arm.has_acceptance:
        return {}
    file = folder.with_name(f"{folder.name}.acceptance.jsonl")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(world.acceptance(), encoding="utf-8")
    return {"gate.acceptance_prompts": str(file.absolute())}


def _curve(seen: dict[int, Look], of: Callable[[Look], float]) -> dict[int, float]:
    return {n: of(look) for n, look in seen.items()}


def _progress(n: int, look: Look) -> str:
    return f"after {n}: v{look.live} served {look.served:.2f}, newest v{look.newest} {look.learner:.2f}"
