"""The supervisor with real processes: restarts, health, clean ends, and no process left after any kill."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from burnish.processes import supervisor as module
from burnish.processes.orphan_guard import watch
from burnish.processes.supervisor import LocalLauncher, Part, PartState, Running, Supervisor

Lines = list[tuple[str, str]]
# A part with a child of its own. Both print their process ids and would run for a long time.
FAMILY = 'sleep 1000 & echo "$$ $!" >> {file}; wait'


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.08)


def shell(name: str, script: str, **changes: object) -> Part:
    return Part(name, ["/bin/sh", "-c", script], {"PATH": os.environ["PATH"]}, **changes)  # type: ignore[arg-type]


@asynccontextmanager
async def running(*parts: Part) -> AsyncIterator[tuple[Supervisor, Lines]]:
    lines: Lines = []
    supervisor = Supervisor(parts, LocalLauncher(lambda part, line: lines.append((part, line))))
    task = asyncio.create_task(supervisor.run())
    try:
        yield supervisor, lines
    finally:
        supervisor.stop()
        await asyncio.wait_for(task, 30)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 (other processes' doings, which set no event here)
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """True if the process runs. A zombie counts as dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def family(file: Path) -> list[int]:
    """The ids of all processes that have printed theirs, in order."""
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


async def test_parts_run_and_their_output_is_forwarded_by_name() -> None:
    async with running(shell("a", "echo one; echo two >&2; sleep 1000"), shell("b", "printf last; sleep 1000")) as (
        supervisor,
        lines,
    ):
        await asyncio.wait_for(supervisor.wait_ready(), 10)
        await until(lambda: len([line for line in lines if line[0] == "a"]) == 2)
        assert supervisor.states == {"a": PartState.READY, "b": PartState.READY}
    assert sorted(lines) == [("a", "one"), ("a", "two"), ("b", "last")]
    assert supervisor.states == {"a": PartState.STOPPED, "b": PartState.STOPPED}


async def test_an_overlong_line_is_no_obstacle() -> None:
    script = "head -c 300000 /dev/zero | tr '\\0' x; echo; echo behind; sleep 1000"
    async with running(shell("a", script)) as (_, lines):
        await until(lambda: ("a", "behind") in lines)
    assert sum(len(line) for _, line in lines) == 300000 + len("behind")


async def test_a_part_that_dies_starts_again_with_growing_pauses_and_the_others_do_not(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    with capture_logs() as log:
        async with running(shell("bad", f"echo x >> {file}; exit 3"), shell("good", "sleep 1000")) as (supervisor, _):
            await until(lambda: supervisor.restarts["bad"] >= 6)
            assert supervisor.restarts["good"] == 0
            assert supervisor.states["good"] is PartState.READY
    events = [entry for entry in log if entry.get("part") == "bad" and "pause" in entry]
    assert [entry["pause"] for entry in events[:6]] == [0.02, 0.04, 0.08, 0.08, 0.08, 0.08]
    assert events[0]["status"] == "exit status 3"
    assert file.read_text().count("x") >= 6


async def test_a_part_that_had_run_well_starts_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEALTHY_SECONDS", 0.0)
    with capture_logs() as log:
        async with running(shell("a", "sleep 0.1")) as (supervisor, _):
            await until(lambda: supervisor.restarts["a"] >= 4)
    assert {entry["pause"] for entry in log if "pause" in entry} == {0.01}


async def test_a_part_is_ready_when_it_is_healthy(tmp_path: Path) -> None:
    mark = tmp_path / "healthy"

    async def is_healthy() -> bool:
        return mark.exists()

    async with running(shell("a", "sleep 1000", is_healthy=is_healthy)) as (supervisor, _):
        await asyncio.sleep(0.5)
        assert supervisor.states["a"] is PartState.STARTING
        mark.touch()
        await asyncio.wait_for(supervisor.wait_ready(["a"]), 10)
        assert supervisor.restarts["a"] == 0


async def test_a_part_that_stops_answering_is_ended_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_MISSED", 1)
    file = tmp_path / "pids"
    sick: list[int] = []

    async def is_healthy() -> bool:
        found = family(file)
        return bool(found) and found[-1] not in sick

    async with running(shell("a", FAMILY.format(file=file), is_healthy=is_healthy)) as (supervisor, _):
        await asyncio.wait_for(supervisor.wait_ready(), 10)
        first = family(file)
        sick += first
        await until(lambda: supervisor.restarts["a"] == 1 and supervisor.states["a"] is PartState.READY)
        assert not any(map(is_alive, first))


async def test_a_part_that_never_answers_is_given_up_after_its_patience() -> None:
    async def never() -> bool:
        return False

    async with running(shell("a", "sleep 1000", is_healthy=never, patience=0.1)) as (supervisor, _):
        await until(lambda: supervisor.restarts["a"] >= 2)


async def test_one_slow_answer_is_forgiven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MISSED", 2)
    answers = iter([True, False, True, False, True])

    async def is_healthy() -> bool:
        return next(answers, True)

    sleep = asyncio.sleep

    async def quick(seconds: float) -> None:
        await sleep(min(seconds, 0.01))

    monkeypatch.setattr(module.asyncio, "sleep", quick)
    async with running(shell("a", "sleep 1000", is_healthy=is_healthy)) as (supervisor, _):
        await until(lambda: next(answers, None) is None)
        assert supervisor.restarts["a"] == 0


async def test_a_health_check_that_breaks_counts_as_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks() -> bool:
        raise RuntimeError("no route to host")

    async with running(shell("a", "sleep 1000", is_healthy=breaks, patience=0.1)) as (supervisor, _):
        await until(lambda: supervisor.restarts["a"] >= 1)


async def test_a_program_that_cannot_be_started_does_not_take_the_others_along(tmp_path: Path) -> None:
    absent = Part("absent", [str(tmp_path / "absent")], {})
    async with running(absent, shell("good", "sleep 1000")) as (supervisor, _):
        await asyncio.wait_for(supervisor.wait_ready(["good"]), 10)
        await until(lambda: supervisor.restarts["absent"] >= 2)
        assert supervisor.states["good"] is PartState.READY


async def test_a_clean_stop_asks_first_and_kills_the_deaf(tmp_path: Path) -> None:
    polite = f"trap 'echo bye > {tmp_path / 'bye'}; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    deaf = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    async with running(shell("polite", polite), shell("deaf", deaf, stop_seconds=0.3)) as (supervisor, lines):
        await until(lambda: len(lines) == 2)
    assert (tmp_path / "bye").read_text() == "bye\n"
    assert set(supervisor.states.values()) == {PartState.STOPPED}


async def test_a_stop_ends_parts_in_reverse_order(tmp_path: Path) -> None:
    file = tmp_path / "order"
    script = "trap 'echo {name} >> {file}; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    parts = [shell(name, script.format(name=name, file=file)) for name in ("engine", "gateway", "learner")]
    async with running(*parts) as (_, lines):
        await until(lambda: len(lines) == 3)
    assert file.read_text().split() == ["learner", "gateway", "engine"]


async def test_a_stop_during_a_pause_does_not_start_anything_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 500.0)
    monkeypatch.setattr(module, "LONGEST_PAUSE", 1000.0)
    file = tmp_path / "starts"
    async with running(shell("a", f"echo x >> {file}; exit 1")) as (supervisor, _):
        await until(lambda: supervisor.states["a"] is PartState.WAITING)
    assert file.read_text() == "x\n"


async def test_killing_a_part_takes_its_children_along(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    async with running(shell("a", FAMILY.format(file=file))) as (supervisor, _):
        await until(lambda: len(family(file)) == 2)
        leader, child = family(file)
        os.kill(leader, signal.SIGKILL)
        await until(lambda: len(family(file)) == 4)
        assert not is_alive(leader) and not is_alive(child)
        assert supervisor.restarts["a"] == 1
    assert not any(map(is_alive, family(file)))


async def test_a_part_that_ends_and_leaves_a_child_behind_starts_again(tmp_path: Path) -> None:
    """The child holds the output pipe open. Nobody may wait for the pipe's end."""
    file = tmp_path / "pids"
    script = f'sleep 1000 & echo "$$ $!" >> {file}; sleep 0.1; exit 1'
    async with running(shell("a", script)) as (supervisor, _):
        await until(lambda: supervisor.restarts["a"] >= 1 and len(family(file)) >= 4)
        assert not any(map(is_alive, family(file)[:2]))
    assert not any(map(is_alive, family(file)))


async def test_a_stop_while_a_part_is_being_started_leaves_nobody(tmp_path: Path) -> None:
    file = tmp_path / "pids"

    class SlowLauncher(LocalLauncher):
        async def start(self, part: Part) -> Running:
            started = await super().start(part)
            await until(lambda: len(family(file)) == 2)
            supervisor.stop()
            await asyncio.sleep(0.2)
            return started

    supervisor = Supervisor([shell("a", FAMILY.format(file=file))], SlowLauncher(lambda part, line: None))
    await asyncio.wait_for(supervisor.run(), 30)
    assert not any(map(is_alive, family(file)))


# A part that says when it is loaded and when it works, and prints its process id to a file as soon as it is there.
RESERVED = 'echo "$$" >> {file}; if [ "$0" = --spare ]; then echo loaded; read line || exit 0; fi; echo "works $$"; '


async def test_a_spare_that_has_loaded_takes_the_place_of_a_part_that_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SPARE_SECONDS", 0.05)
    file = tmp_path / "pids"
    part = shell("a", RESERVED.format(file=file) + "sleep 1000", has_spare=True)
    async with running(part) as (supervisor, lines):
        for number in (1, 2, 3):
            await until(lambda: len(family(file)) == number + 1)  # noqa: B023 (awaited here)
            old, spare = family(file)[-2:]
            # the first one loads in idle time, one whose predecessor was needed at once
            assert os.sched_getscheduler(spare) == (os.SCHED_IDLE if number == 1 else os.SCHED_OTHER)
            os.kill(old, signal.SIGKILL)
            await until(lambda: ("a", f"works {spare}") in lines)  # noqa: B023
            assert os.sched_getscheduler(spare) == os.SCHED_OTHER
            assert (supervisor.restarts["a"], lines.count(("a", "loaded"))) == (number, number)
        await until(lambda: len(family(file)) == 5)
    assert not any(map(is_alive, family(file))), "neither the part nor a spare is left"


async def test_a_spare_that_died_is_replaced_by_a_new_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SPARE_SECONDS", 0.05)
    file = tmp_path / "pids"
    async with running(shell("a", RESERVED.format(file=file) + "sleep 1000", has_spare=True)) as (_, lines):
        await until(lambda: len(family(file)) == 2)
        old, spare = family(file)
        os.kill(spare, signal.SIGKILL)
        await until(lambda: not is_alive(spare))
        os.kill(old, signal.SIGKILL)
        await until(lambda: len(family(file)) == 4)
        assert any(line == ("a", f"works {pid}") for pid in family(file)[2:] for line in lines)
    assert not any(map(is_alive, family(file)))


async def test_a_child_that_left_the_group_cannot_hold_its_parent_back(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    script = f"setsid sh -c 'echo $$ >> {file}; exec sleep 1000' & sleep 0.2; exit 1"
    try:
        async with running(shell("a", script)) as (supervisor, _):
            await until(lambda: supervisor.restarts["a"] >= 2)
    finally:
        for pid in family(file):
            os.kill(pid, signal.SIGKILL)


SUPERVISED = """
import asyncio, json, sys
from burnish.processes.supervisor import LocalLauncher, Part, Supervisor

async def main():
    path = {"PATH": "/usr/bin:/bin"}
    parts = [Part(name, ["/bin/sh", "-c", script], path) for name, script in json.loads(sys.argv[1])]
    supervisor = Supervisor(parts, LocalLauncher(lambda part, line: None))
    task = asyncio.create_task(supervisor.run())
    while supervisor._orphan_guard is None:
        await asyncio.sleep(0.01)
    print(supervisor._orphan_guard.pid, flush=True)
    orphan_guard = supervisor._orphan_guard
    while supervisor._orphan_guard is orphan_guard:
        await asyncio.sleep(0.01)
    print(supervisor._orphan_guard.pid, flush=True)
    await task

asyncio.run(main())
"""


@contextlib.contextmanager
def supervised(*scripts: str) -> Iterator["subprocess.Popen[str]"]:
    """A supervisor in its own process. It prints its orphan_guard's process id, and again when there is a new one."""
    root = Path(__file__).parents[2]
    parts = json.dumps([(f"part-{i}", script) for i, script in enumerate(scripts)])
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISED, parts],
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def told(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def wait_for(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_killing_the_supervisor_leaves_nobody(tmp_path: Path) -> None:
    """No part, no child and finally no orphan_guard is left. One part ignores every polite signal."""
    files = [tmp_path / "one", tmp_path / "two"]
    deaf = "trap '' TERM HUP INT; " + FAMILY.format(file=files[1])
    with supervised(FAMILY.format(file=files[0]), deaf) as process:
        orphan_guard = told(process)
        wait_for(lambda: all(len(family(file)) == 2 for file in files))
        everyone = [pid for file in files for pid in family(file)] + [orphan_guard]
        assert all(map(is_alive, everyone))
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_for(lambda: not any(map(is_alive, everyone)))


def test_killing_the_lifeline_is_survived_and_made_good(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    with supervised(FAMILY.format(file=file)) as process:
        first = told(process)
        wait_for(lambda: len(family(file)) == 2)
        os.kill(first, signal.SIGKILL)
        second = told(process)
        assert second != first and is_alive(second)
        assert all(map(is_alive, family(file)))
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_for(lambda: not any(map(is_alive, [*family(file), second])))


@pytest.mark.parametrize(
    ("lines", "groups"),
    [
        ([], set()),
        (["+12\n", "+13\n"], {12, 13}),
        (["+12\n", "-12\n", "+14\n"], {14}),
        (["-12\n", "+12\n"], {12}),
        (["+12\n", "+\n", "garbage\n", "+-1\n", "+0x1\n", "+1"], {12, 1}),
    ],
)
def test_the_lifeline_knows_who_is_left(lines: list[str], groups: set[int]) -> None:
    assert watch(lines) == groups
