"""The supervisor: starts the parts, watches their health, restarts what dies, and leaves no process behind.

Each part is a process group of its own. The end of a part ends its group. A guard process ends all groups if the
supervisor dies, even by `kill -9`. A part that keeps dying is restarted with growing pauses. A part that people wait
for has a spare: a second process that has loaded its code and waits for its turn, so that a restart costs no imports.
"""

import asyncio
import contextlib
import ctypes
import math
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import structlog

from burnish.processes import orphan_guard as orphan_guard
from burnish.processes.beats import Pulse

log = structlog.get_logger()
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
HEALTHY_SECONDS = 5.0
"""Seconds of health after which the next pause is the first one again."""
MAX_MISSED = 5
LAST_WORDS_SECONDS = 1.0
SPARE = "--spare"
"""The option with which a part loads its code and then waits until a line comes on its standard input."""
SPARE_SECONDS = 5.0
"""Seconds after a start until a spare is started: the parts that have just begun come first."""
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class PartState(StrEnum):
    """The state of a part."""

    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting to restart"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Part:
    """A part to run. `is_healthy` checks it, or `pulse` watches its process id (neither: running is enough). `patience`
    is the time in seconds until it must be healthy. With `has_spare`, its command knows `SPARE`.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    is_healthy: Callable[[], Awaitable[bool]] | None = None
    pulse: Callable[[int], Pulse] | None = None
    patience: float = 300.0
    stop_seconds: float = 10.0
    has_spare: bool = False


class Running(Protocol):
    """A started part."""

    @property
    def group(self) -> int | None:
        """The process-group id of a local process."""

    async def lines(self) -> None:
        """Forward its output until it ends."""

    async def wait(self) -> int:
        """The exit status, once it has ended and its whole group is gone."""

    def interrupt(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it and everything it started."""


class Launcher(Protocol):
    """The seam to the place where parts run: processes on this machine, or actors elsewhere."""

    async def start(self, part: Part) -> Running:
        """Start `part`."""

    async def close(self) -> None:
        """End what it keeps in reserve. It starts nothing more."""


@dataclass
class _LocalProcess:
    part: Part
    process: asyncio.subprocess.Process
    output: asyncio.StreamReader
    pipe: asyncio.ReadTransport
    emit: Callable[[str, str], None]

    @property
    def group(self) -> int | None:
        return self.process.pid

    async def lines(self) -> None:
        try:
            while line := await _read_line(self.output):
                self.emit(self.part.name, line.decode(errors="replace").rstrip())
        finally:
            self.pipe.close()

    async def wait(self) -> int:
        status = await self.process.wait()
        self.kill()
        return status

    def take_over(self) -> bool:
        """A spare's turn has come. False if it has ended."""
        if self.process.stdin is None or self.process.returncode is not None:
            return False
        with contextlib.suppress(OSError):
            os.sched_setscheduler(self.process.pid, os.SCHED_OTHER, os.sched_param(0))
        self.process.stdin.write(b"\n")
        self.process.stdin.close()
        return True

    def interrupt(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


class LocalLauncher:
    """Parts as child processes. Their output goes to `emit(part, line)`."""

    def __init__(self, emit: Callable[[str, str], None]) -> None:
        self._emit = emit
        self._spares: dict[str, _LocalProcess] = {}
        self._coming: dict[str, asyncio.Task[None]] = {}

    async def start(self, part: Part) -> Running:
        spare = self._spares.pop(part.name, None)
        has_taken_over = spare is not None and spare.take_over()
        if part.has_spare and part.name not in self._coming:
            # what has ended a part may end it again: the next spare must not wait for a quiet time
            self._coming[part.name] = asyncio.create_task(self._make_spare(part, is_urgent=has_taken_over))
        if spare is not None and has_taken_over:
            return spare
        if spare is not None:
            await self._drop(spare)
        return await self._started(part)

    async def close(self) -> None:
        for task in self._coming.values():
            task.cancel()
        await asyncio.gather(*self._coming.values(), return_exceptions=True)
        while self._spares:
            await self._drop(self._spares.popitem()[1])

    async def _drop(self, spare: _LocalProcess) -> None:
        spare.kill()
        await spare.wait()
        spare.pipe.close()

    async def _make_spare(self, part: Part, *, is_urgent: bool) -> None:
        """Start the part's spare. It ends with this process, which holds the other end of its standard input."""
        try:
            if not is_urgent:
                await asyncio.sleep(SPARE_SECONDS)
            first = _die_with_parent if is_urgent else _in_idle_time
            self._spares[part.name] = await self._started(part, is_spare=True, first=first)
        except OSError as error:
            log.warning("a spare cannot be started", part=part.name, error=str(error))
        finally:
            del self._coming[part.name]

    async def _started(
        self, part: Part, *, is_spare: bool = False, first: Callable[[], None] | None = None
    ) -> _LocalProcess:
        """The part as a process. `first` runs in it before the part's command."""
        # A pipe of our own: with asyncio's, `wait` would wait as long as any child of the part holds it open.
        receiving, sending = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *part.command,
                *([SPARE] if is_spare else []),
                env=dict(part.environment),
                stdin=asyncio.subprocess.PIPE if is_spare else asyncio.subprocess.DEVNULL,
                stdout=sending,
                stderr=sending,
                start_new_session=True,
                preexec_fn=first or _die_with_parent,
            )
        except BaseException:
            os.close(receiving)
            raise
        finally:
            os.close(sending)
        output = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(receiving, "rb", buffering=0)
        )
        return _LocalProcess(part, process, output, pipe, self._emit)


@dataclass
class _Watched:
    part: Part
    state: PartState = PartState.STARTING
    n_restarts: int = 0
    running: Running | None = None
    ready_at: float = math.inf
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Supervisor:
    """Runs parts until it is told to stop."""

    def __init__(self, parts: Sequence[Part], launcher: Launcher) -> None:
        self._watched = {part.name: _Watched(part) for part in parts}
        self._launcher = launcher
        self._stopping = asyncio.Event()
        self._orphan_guard: asyncio.subprocess.Process | None = None

    @property
    def states(self) -> dict[str, PartState]:
        return {name: watched.state for name, watched in self._watched.items()}

    @property
    def restarts(self) -> dict[str, int]:
        return {name: watched.n_restarts for name, watched in self._watched.items()}

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Begin a clean shutdown; `run` returns when everything has ended."""
        self._stopping.set()

    async def wait_ready(self, names: Sequence[str] | None = None) -> None:
        """Wait until the named parts (default: all) have been healthy once."""
        await asyncio.gather(*(self._watched[name].ready.wait() for name in names or list(self._watched)))

    async def run(self) -> None:
        """Start everything and keep it going until `stop` is called."""
        keepers = [asyncio.create_task(self._keep(watched)) for watched in self._watched.values()]
        orphan_guard = asyncio.create_task(self._keep_orphan_guard())
        await self._stopping.wait()
        for watched in reversed(self._watched.values()):
            await self._end(watched)
        await self._launcher.close()
        await asyncio.gather(*keepers)  # not cancelled, because one may be starting its part at this moment
        orphan_guard.cancel()
        await asyncio.gather(orphan_guard, return_exceptions=True)
        if self._orphan_guard is not None and self._orphan_guard.stdin is not None:
            self._orphan_guard.stdin.close()
            await self._orphan_guard.wait()

    async def _keep(self, watched: _Watched) -> None:
        """Run one part: start, watch, and start again."""
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            watched.state, watched.ready_at = PartState.STARTING, math.inf
            how = await self._live(watched)
            if self._stopping.is_set():
                break
            was_healthy = time.monotonic() - watched.ready_at > HEALTHY_SECONDS
            pause = FIRST_PAUSE if was_healthy else min(LONGEST_PAUSE, 2 * pause)
            watched.state = PartState.WAITING
            watched.n_restarts += 1
            log.warning("a part ended; it starts again", part=watched.part.name, status=how, pause=pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
        watched.state = PartState.STOPPED

    async def _live(self, watched: _Watched) -> str:
        """Run one part once. Returns how it ended."""
        watched.ended.clear()
        try:
            running = await self._launcher.start(watched.part)
        except OSError as error:
            return f"cannot be started: {error}"
        watched.running = running
        self._tell_orphan_guard("+", running.group)
        if self._stopping.is_set():  # `stop` came while the part was starting
            running.kill()
        output = asyncio.create_task(running.lines())
        health = asyncio.create_task(self._watch_health(watched, running))
        status = await running.wait()
        self._tell_orphan_guard("-", running.group)
        health.cancel()
        if watched.part.pulse is not None and running.group is not None:
            watched.part.pulse(running.group).forget()
        await asyncio.wait([output], timeout=LAST_WORDS_SECONDS)  # a process that left the group may hold the pipe open
        output.cancel()
        await asyncio.gather(output, health, return_exceptions=True)
        watched.running = None
        watched.ended.set()
        return _describe(status)

    async def _watch_health(self, watched: _Watched, running: Running) -> None:
        part = watched.part
        pulse = part.pulse(running.group) if part.pulse is not None and running.group is not None else None
        check = part.is_healthy if pulse is None else _goes_on(pulse)
        if check is None:
            self._note_ready(watched)
            return
        deadline, n_missed = time.monotonic() + part.patience, 0
        while True:
            if await _is_healthy(check):
                n_missed = 0
                if watched.state is not PartState.READY:
                    self._note_ready(watched)
                    log.info("ready", part=part.name)
            else:
                n_missed += 1
                is_lost = watched.state is PartState.READY and n_missed >= MAX_MISSED
                if is_lost or (watched.state is PartState.STARTING and time.monotonic() > deadline):
                    log.error("a part does not answer; it is ended and started again", part=part.name)
                    running.kill()
                    return
            is_quiet = watched.state is PartState.READY and not n_missed
            await asyncio.sleep(2.0 if is_quiet else 1.0 if watched.state is PartState.READY else 0.25)

    @staticmethod
    def _note_ready(watched: _Watched) -> None:
        watched.state, watched.ready_at = PartState.READY, time.monotonic()
        watched.ready.set()

    async def _end(self, watched: _Watched) -> None:
        running = watched.running
        if running is None:
            return
        running.interrupt()
        try:
            await asyncio.wait_for(watched.ended.wait(), watched.part.stop_seconds)
        except TimeoutError:
            log.warning("a part did not end in time; it is killed", part=watched.part.name)
            running.kill()
            await watched.ended.wait()

    async def _keep_orphan_guard(self) -> None:
        while not self._stopping.is_set():
            self._orphan_guard = await asyncio.create_subprocess_exec(
                sys.executable, "-S", "-E", orphan_guard.__file__, stdin=asyncio.subprocess.PIPE, start_new_session=True
            )
            for watched in self._watched.values():
                if watched.running is not None:
                    self._tell_orphan_guard("+", watched.running.group)
            await self._orphan_guard.wait()

    def _tell_orphan_guard(self, sign: str, group: int | None) -> None:
        pipe = self._orphan_guard.stdin if self._orphan_guard is not None else None
        if pipe is not None and group is not None and not pipe.is_closing():
            pipe.write(f"{sign}{group}\n".encode())


def _die_with_parent() -> None:
    """Runs in the child before exec: SIGKILL when the supervisor's thread dies."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _in_idle_time() -> None:
    """The same for a spare: it loads its code while nobody else wants the processor."""
    _die_with_parent()
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _goes_on(pulse: Pulse) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return pulse.goes_on()

    return check


async def _is_healthy(check: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await check()
    except Exception as error:  # an error in a check means that the part has not shown that it works
        log.warning("a health check failed", error=repr(error))
        return False


async def _read_line(stream: asyncio.StreamReader) -> bytes:
    """The next line. An overlong one comes in pieces and does not end the stream."""
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await stream.readexactly(error.consumed)


def _describe(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
