"""A part that hangs is started again: by its beats, by its CPU time, and an engine by whether it makes tokens."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from burnish.cli.parts import Stopping
from burnish.config import Gateway, Learner, Settings
from burnish.processes import beats, supervisor
from burnish.processes.beats import Beat, Pulse, beat_of
from burnish.processes.engine_canary import EngineCanary
from burnish.processes.parts import parts_of
from burnish.processes.supervisor import LocalLauncher, Part, Supervisor

BEATING = """
import sys, time
from pathlib import Path
from burnish.cli.parts import Stopping
stopping = Stopping(Path(sys.argv[1]))
while not stopping():
    time.sleep(0.05)
"""


def test_a_part_goes_on_while_it_beats_and_no_clock_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(beats.time, "monotonic", lambda: now)
    pulse = Pulse(tmp_path, os.getpid(), 60.0)
    assert not pulse.goes_on()  # it has not begun
    beat = Beat(tmp_path)
    assert pulse.goes_on()
    now += 59
    assert pulse.goes_on()
    file = beat_of(tmp_path, os.getpid())
    os.utime(file, (5.0, 5.0))  # the machine's clock was put back
    assert pulse.goes_on()
    now += 59
    assert pulse.goes_on()
    now += 2
    assert not pulse.goes_on()
    beat()
    assert pulse.goes_on()
    file.unlink()  # somebody cleared the folder: no sign of life, but no death either
    now += 30
    assert pulse.goes_on()
    pulse.forget()


def test_long_work_is_a_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, worked = 1000.0, 0.0
    monkeypatch.setattr(beats.time, "monotonic", lambda: now)
    monkeypatch.setattr(beats, "_cpu_seconds", lambda pid: worked)
    Beat(tmp_path)
    pulse = Pulse(tmp_path, os.getpid(), 60.0, counts_work=True)
    assert pulse.goes_on()
    for _ in range(5):
        now, worked = now + 50, worked + 3
        assert pulse.goes_on()
    now += 61
    assert not pulse.goes_on()
    monkeypatch.undo()
    assert beats._cpu_seconds(-1) == 0.0


def test_every_look_at_the_flag_is_a_beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beats, "INTERVAL", 0.0)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    stopping = Stopping(tmp_path)
    file = beat_of(tmp_path, os.getpid())
    os.utime(file, (5.0, 5.0))
    assert not stopping() and file.stat().st_mtime > 5.0


async def test_a_part_that_was_stopped_in_its_tracks_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.01)
    command = [sys.executable, "-c", BEATING, str(tmp_path)]
    part = Part("judge", command, dict(os.environ), pulse=lambda pid: Pulse(tmp_path, pid, 1.5))
    running = Supervisor([part], LocalLauncher(lambda *_: None))
    task = asyncio.create_task(running.run())
    try:
        await asyncio.wait_for(running.wait_ready(), 60)
        (first,) = [int(path.name) for path in (tmp_path / "beats").iterdir()]
        os.kill(first, signal.SIGSTOP)
        async with asyncio.timeout(60):
            while not {int(path.name) for path in (tmp_path / "beats").iterdir()} - {first}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert running.restarts["judge"] == 1
        assert not beat_of(tmp_path, first).exists()
    finally:
        running.stop()
        await asyncio.wait_for(task, 30)


def test_every_part_of_a_server_is_watched(tmp_path: Path) -> None:
    for part in parts_of(Settings(state_dir=tmp_path), {}):
        assert (part.is_healthy is None) != (part.pulse is None), part.name
    several = parts_of(Settings(state_dir=tmp_path, learner=Learner(processes=2), gateway=Gateway(ui_port=0)), {})
    assert [part.name for part in several if part.is_healthy is part.pulse is None] == ["learner"]


class Worker:
    """An engine's front, whose worker can hang, be busy, or refuse."""

    def __init__(self) -> None:
        self.is_well, self.status, self.n_tokens, self.step = True, 200, 0, 0
        self.hangs = asyncio.Event()
        self.n_asked = 0

    async def health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.is_well else 500)

    async def complete(self, request: web.Request) -> web.Response:
        self.n_asked += 1
        assert (await request.json())["max_tokens"] == 1
        if self.hangs.is_set():
            await asyncio.sleep(30)
        return web.json_response({"choices": []}, status=self.status)

    async def metrics(self, _: web.Request) -> web.Response:
        self.n_tokens += self.step
        return web.Response(text=f'vllm:generation_tokens_total{{engine="0"}} {self.n_tokens}.0\n')


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Worker, EngineCanary]]:
    worker, app = Worker(), web.Application()
    app.router.add_get("/health", worker.health)
    app.router.add_get("/metrics", worker.metrics)
    app.router.add_post("/v1/completions", worker.complete)
    runner = web.AppRunner(app, shutdown_timeout=0.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    canary = EngineCanary(f"http://127.0.0.1:{runner.addresses[0][1]}", "k", patience=0.3, interval=0.0)
    try:
        yield worker, canary
    finally:
        await runner.cleanup()


async def test_an_engine_is_well_only_while_it_makes_tokens() -> None:
    async with served() as (worker, canary):
        assert await canary()
        worker.hangs.set()  # its front still says that it is well
        assert not await canary()
        assert not await canary()
        worker.step = 5  # busy, not hung
        assert await canary()
        worker.step = 0
        assert not await canary()
        worker.hangs.clear()
        worker.status = 503  # its queue is full, and nothing moves
        assert not await canary()
        worker.step = 1
        assert await canary()
        worker.status, worker.step = 400, 0
        assert await canary()
        worker.is_well = False
        assert not await canary()


async def test_an_idle_engine_is_not_asked_all_the_time() -> None:
    async with served() as (worker, canary):
        canary._interval = 60.0
        started = time.monotonic()
        while worker.n_asked == 0:
            assert await canary()
        for _ in range(3):
            assert await canary()
        assert worker.n_asked == 1 or time.monotonic() > started + 60
