"""Runs, a few at a time on one engine. Finished runs stay, and a failed run does not stop the others."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from benchmarks.learning import engine
from benchmarks.learning.engine import SharedEngine


class Tell(Protocol):
    """How a run reports its progress."""

    def __call__(self, n: int, words: str = "") -> None:
        """Report `n` more interactions, and a line of text if `words` is given."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run to do. `play` does it, keeps its result and reports its progress out of `n_interactions`."""

    name: str
    n_interactions: int
    play: Callable[[SharedEngine, Tell], Awaitable[str]]
    """Returns a few words on the result."""


async def work(
    jobs: Sequence[Job],
    n_at_once: int,
    folder: Path,
    console: Console,
    given: SharedEngine | None = None,
    own: Mapping[str, Any] = engine.SANDBOX,
) -> list[str]:
    """Do all jobs in order, `n_at_once` at a time, with a progress bar. Returns the failures, a line each.

    They share the engine `given`, or else one that is started in `folder` with the settings `own`.
    """
    if not jobs:
        return []
    faults: list[str] = []
    waiting = list(reversed(jobs))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        whole = bar.add_task("starting vLLM", total=sum(job.n_interactions for job in jobs))
        async with nullcontext(given) if given is not None else engine.running(folder, n_at_once, own) as shared:
            began = time.monotonic()
            bar.update(whole, description=f"{len(jobs)} runs, interactions")

            def print_line(text: str) -> None:
                bar.console.print(f"{time.strftime('%H:%M:%S')} {text}", highlight=False)

            async def worker() -> None:
                while waiting:
                    job = waiting.pop()
                    line = bar.add_task(job.name, total=job.n_interactions)

                    def tell(n: int, words: str = "", job: Job = job, line: TaskID = line) -> None:
                        bar.advance(line, n)
                        bar.advance(whole, n)
                        if words:
                            print_line(f"{job.name}: {words}; {_left(bar, whole, began)}")

                    try:
                        words = await job.play(shared, tell)
                    except Exception as error:  # one failed run must not stop the others; it leaves no result
                        faults.append(f"{job.name}: {error!r}")
                        words = f"failed: {error!r}"
                        bar.advance(
                            whole, job.n_interactions - next(each.completed for each in bar.tasks if each.id == line)
                        )
                    bar.remove_task(line)
                    print_line(f"{job.name}: {words}; {_left(bar, whole, began)}")

            await asyncio.gather(*(worker() for _ in range(n_at_once)))
    return faults


def _left(bar: Progress, whole: TaskID, began: float) -> str:
    task = next(task for task in bar.tasks if task.id == whole)
    if not task.completed:
        return "time left unknown"
    left = (time.monotonic() - began) * ((task.total or 0) - task.completed) / task.completed
    return f"{left / 60:.0f} min left"
