"""From the feedback that fills a batch to the first token of the version made from it, on a whole running stack."""

import asyncio
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import select
from sqlmodel import col

from benchmarks.learner.stand import Reply, Stand, opening, standing
from burnish.journal.tables import InteractionRow, StepRow, VersionRow

N_ROWS = 16
PATIENCE = 120.0
LOOK = 0.02
"""Seconds."""


async def measure(folder: Path, *, rounds: int, tell: Callable[[str], None]) -> dict[str, float]:
    """Medians over `rounds`: from signal to live, the step in it, and the rest of the time by part (seconds)."""
    tell("starting every part")
    found: list[dict[str, float]] = []
    async with standing(folder, learner__min_rows=N_ROWS, learner__max_rows=N_ROWS, judge__concurrency=1) as stand:
        for number in range(rounds):
            tell(f"round {number + 1} of {rounds}")
            found.append(await _round(stand, random.Random(number)))
    medians = {name: statistics.median(each[name] for each in found) for name in found[0]}
    return medians | {"signal_to_live_limit_s": 1.5 * medians["step_s"] + 1.0, "rounds": float(rounds)}


async def rows_ready(stand: Stand, n: int, rng: random.Random | None = None, *, but: int = 0) -> list[Reply]:
    """Get `n` replies and rate them, up and down so that there is something to learn.

    Returns the last `but` replies, which are not rated.
    """
    rng = rng or random.Random(0)
    replies = await asyncio.gather(*(stand.ask(opening(rng), user=f"u{i % 8}") for i in range(n)))
    for reply in replies[: n - but]:
        await stand.rate(reply, rng.choice(("up", "down")))
    await _until(lambda: _n_ready(stand) >= n - but, f"{n - but} rows to be ready")
    return list(replies[n - but :])


async def _round(stand: Stand, rng: random.Random) -> dict[str, float]:
    before = await _live(stand)
    last = await rows_ready(stand, N_ROWS, rng, but=1)
    started, started_at = time.monotonic(), time.time()
    await stand.rate(last[0], rng.choice(("up", "down")))
    answer = Reply()
    while not answer.at or answer.version == before:
        if time.monotonic() - started > PATIENCE:
            raise TimeoutError(f"no new version within {PATIENCE:.0f} s; the parts' log says why")
        await asyncio.sleep(LOOK)  # a client that asks without a pause would take processor time from the learner
        answer = await stand.ask("say hello", max_tokens=2, trains=False)
    first = answer.at[0] - started
    return {"signal_to_live_s": first, **_spans(stand, answer.version, started_at)}


def _spans(stand: Stand, version: int, started_at: float) -> dict[str, float]:
    """The seconds of the step itself, before it, of its files, and of its trial."""
    with stand.journal.read() as session:
        step = session.scalars(select(StepRow).where(col(StepRow.version) == version)).one()
        made = session.get_one(VersionRow, (stand.settings.agent.name, version))
    inside = step.metrics["seconds"]
    return {
        "step_s": inside,
        "to_step_s": step.started_at - started_at,
        "files_s": made.created_at - step.started_at - inside,
        "trial_s": (made.decided_at or 0.0) - made.created_at,
    }


async def _live(stand: Stand) -> int:
    return (await stand.ask("say hello", max_tokens=2, trains=False)).version


def _n_ready(stand: Stand) -> int:
    with stand.journal.read() as session:
        query = select(col(InteractionRow.interaction_id)).where(
            col(InteractionRow.is_ready).is_(True),
            col(InteractionRow.spent_step).is_(None),
            col(InteractionRow.skip_reason).is_(None),
        )
        return len(session.scalars(query).all())


async def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE:.0f} s for {what}")
        await asyncio.sleep(0.05)
