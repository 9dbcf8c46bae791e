"""Runs a few at a time: all are done, and a failed one stops no other."""

import asyncio
import io
from pathlib import Path

from rich.console import Console

from benchmarks.learning import queue
from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.queue import Job, Tell

ENGINE = SharedEngine("http://127.0.0.1:9", "")


def job(name: str, done: list[str], error: str = "") -> Job:
    async def play(engine: SharedEngine, tell: Tell) -> str:
        assert engine is ENGINE
        tell(8, "half of it")
        await asyncio.sleep(0)
        if error:
            raise RuntimeError(error)
        tell(8)
        done.append(name)
        return "well"

    return Job(name, 16, play)


def work(jobs: list[Job], folder: Path) -> tuple[list[str], str]:
    console = Console(width=200, file=io.StringIO(), record=True)
    return asyncio.run(queue.work(jobs, 2, folder, console, ENGINE)), console.export_text()


def test_one_that_breaks_is_told_and_stops_no_other(tmp_path: Path) -> None:
    done: list[str] = []
    faults, text = work([job("a", done), job("b", done, "the judge is gone"), job("c", done)], tmp_path)

    assert done == ["a", "c"]
    assert faults == ["b: RuntimeError('the judge is gone')"]
    assert "a: half of it" in text
    assert "b: failed: RuntimeError('the judge is gone')" in text
    assert "min left" in text


def test_nothing_to_do_starts_nothing(tmp_path: Path) -> None:
    assert asyncio.run(queue.work([], 2, tmp_path / "engine", Console(quiet=True))) == []
    assert not (tmp_path / "engine").exists()
