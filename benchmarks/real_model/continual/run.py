"""One run of three populations with one seed: an exam on every wish after each, and the general abilities."""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.learning import stack
from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.queue import Tell
from benchmarks.learning.results import Result
from benchmarks.learning.style.run import Plan, converse
from benchmarks.learning.style.talk import Talker
from benchmarks.real_model.continual.wishes import N_EACH, POPULATIONS, people
from benchmarks.real_model.english import world
from benchmarks.real_model.english.arms import Arm
from benchmarks.real_model.english.run import by_interactions, costs, lengths, talk_of
from benchmarks.real_model.exams import Exams
from burnish.sandbox.english import questions, style


def graded(replies: list[str]) -> dict[str, float]:
    """The replies by everybody's wishes: `score_1` for the first population and so on, `content`, each wish by its
    name.
    """
    asked = questions.heldout()
    by_population = [style.breakdown(asked, replies, wishes) for wishes in POPULATIONS]
    whole = {key: value for each in by_population for key, value in each.items() if key != "score"}
    return whole | {f"score_{n}": each["score"] for n, each in enumerate(by_population, 1)}


async def play(
    arm: Arm, seed: int, engine: SharedEngine, folder: Path, cache: Path, tell: Tell, n_each: int = N_EACH
) -> Result:
    """Do the whole run in a fresh `folder`. Its scores are the first population's.

    Raises BurnishError if its parts do not start or too many turns are lost.
    """
    began, flags, agent = time.monotonic(), arm.flags(seed), stack.agent_name(arm.name, seed)
    async with stack.running(folder, engine, agent, flags, cache) as running:
        talk, exams = talk_of(running, seed), Exams(running)
        seen: dict[int, Mapping[str, float]] = {0: graded(await exams.replies())}

        async def examine(n_before: int, name: str, n: int) -> float:
            seen[n_before + n] = {**graded(await exams.replies()), **await exams.abilities()}
            return seen[n_before + n][name]

        n_late, plan = 0, Plan(n_each, (n_each,))
        for place in range(len(POPULATIONS)):
            talk.talkers = [Talker(user) for user in people(seed, place)]
            look = partial(examine, place * n_each, f"score_{place + 1}")
            n_late += (await converse(running, talk, plan, look, tell, world.PATIENCE)).n_late
        curves = by_interactions(seen) | lengths(running)
        figures = costs(running, n_late) | {"seconds": round(time.monotonic() - began, 1)}
    return Result(arm.name, seed, flags, curves["score_1"], figures, curves)
