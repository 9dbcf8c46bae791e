"""The chaos benchmark's plan, its excuses and its audit, which decide what counts as lost."""

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.chaos import database, learning, machine, soak
from benchmarks.chaos.faults import Done, _is_excused, _known, plan, recoveries
from benchmarks.chaos.ledger import Ledger, Seen, audit
from benchmarks.chaos.machine import KINDS, Control, Over, _may_be_refused, _may_be_unrecorded


def test_a_plan_follows_from_its_seed_and_a_longer_one_begins_alike() -> None:
    assert plan(7, 40)[:10] == plan(7, 10) != plan(8, 10)
    assert {each.part for each in plan(7, 200)} == {"gateway", "ingester", "swapper", "judge", "learner", "engine"}


def test_only_a_gateway_or_an_engine_excuses_a_failed_request() -> None:
    done = [Done(0, "judge", "kill", 100.0, 110.0, 10.0), Done(1, "gateway", "stall", 200.0, 204.0, 1.0)]
    assert not _is_excused(101.0, 102.0, done)
    assert _is_excused(199.0, 201.0, done) and _is_excused(205.0, 205.5, done)
    assert not _is_excused(150.0, 151.0, done) and not _is_excused(207.0, 208.0, done)
    assert recoveries(done) == {"recover_gateway_stall": 1.0, "recover_judge": 10.0}


def test_a_broken_off_run_goes_on_with_what_it_knows(tmp_path: Path) -> None:
    assert _known(tmp_path / "faults.jsonl") == []
    line = {"number": 0, "part": "judge", "kind": "kill", "at": 1.0, "recovered_at": 2.0, "recovery": 1.0}
    (tmp_path / "faults.jsonl").write_text(json.dumps(line) + "\n")
    assert _known(tmp_path / "faults.jsonl") == [Done(0, "judge", "kill", 1.0, 2.0, 1.0)]
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(Seen("client 0 turn 0", 1.0, 2.0, True, False))
    assert Ledger(tmp_path / "ledger.jsonl").load().seen == ledger.seen


def test_the_audit_finds_what_is_lost_doubled_or_trained_twice(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as database:
        database.execute("CREATE TABLE blob (digest, body)")
        database.execute("CREATE TABLE interaction (message_digests)")
        database.execute("CREATE TABLE step (step_id, outcome)")
        database.execute("CREATE TABLE sample (step_id, interaction_id)")
        for n in range(4):
            ledger.add(Seen(f"client 0 turn {n}", 1.0, 2.0, n != 3, False))
            body = json.dumps({"role": "user", "content": f"client 0 turn {n}"})
            database.execute("INSERT INTO blob VALUES (?, ?)", (f"d{n}", body))
        for digests in (["d0"], ["d0", "x", "d1"], ["d1"]):  # d2 is only half of what its client saw
            database.execute("INSERT INTO interaction VALUES (?)", (json.dumps(digests),))
        for step, outcome, turn in (
            (1, "published", "a"),
            (2, "published", "a"),
            (3, "refused", "b"),
            (4, "published", "b"),
        ):
            database.execute("INSERT INTO step VALUES (?, ?)", (step, outcome))
            database.execute("INSERT INTO sample VALUES (?, ?)", (step, turn))
    found = audit(tmp_path / "journal.db", ledger)
    assert (found.lost, found.doubled, found.trained_twice) == (("client 0 turn 2",), ("client 0 turn 1",), 1)


def test_the_learner_is_done_if_less_waits_than_begins_a_step_and_no_step_is_open() -> None:
    assert learning._is_settled({"n_waiting": 1, "n_open": 0})
    assert not learning._is_settled({"n_waiting": 2, "n_open": 0})
    assert not learning._is_settled({"n_waiting": 0, "n_open": 1})


def test_a_slope_leaves_out_the_warm_up_and_is_not_moved_by_single_samples() -> None:
    samples = [
        {"hours": n / 10, "steps": 1.0, "versions": 1.0, "memory": 50.0 if n < 10 else 100.0 + n, "disk": 7.0}
        for n in range(31)
    ]
    samples[20]["memory"] = 10_000.0
    found = soak.slopes(samples)
    assert found.keys() == {"memory_slope", "disk_slope"}
    assert found["memory_slope"] == pytest.approx(100 * 10.0 / 120.0, rel=0.02)
    assert found["disk_slope"] == 0.0
    assert soak.slopes(samples[:2]) == {}


def test_a_plan_for_a_machine_follows_from_its_seed() -> None:
    assert machine.plan(7, 40)[:10] == machine.plan(7, 10) != machine.plan(8, 10)
    assert {each.kind for each in machine.plan(7, 60)} == set(KINDS)


def test_a_plan_for_a_database_follows_from_its_seed() -> None:
    assert database.plan(7, 40)[:10] == database.plan(7, 10) != database.plan(8, 10)
    assert {each.kind for each in database.plan(7, 40)} == set(database.KINDS)


def test_only_a_disk_that_takes_nothing_excuses_a_missing_record() -> None:
    done = [Over("full", 100.0, 104.0, 0.1), Over("slow", 200.0, 204.0, 0.1)]
    assert _may_be_unrecorded(Seen("a", 103.0, 105.0, True, False), done)
    for began, ended in ((98.0, 99.0), (105.0, 106.0), (201.0, 202.0)):
        assert not _may_be_unrecorded(Seen("a", began, ended, True, False), done)
    done.append(Over("handles", 300.0, 304.0, 1.0))
    failed = Seen("a", 303.0, 305.0, False, False)
    assert _may_be_refused(failed, done) and not _may_be_unrecorded(failed, done)
    assert not _may_be_refused(Seen("a", 103.0, 105.0, False, False), done)


_WRITES = """
import os, sys
folder = sys.argv[1]
for act in (
    lambda: os.open(f"{folder}/new", os.O_CREAT | os.O_WRONLY),
    lambda: os.write(os.open(f"{folder}/old", os.O_WRONLY | os.O_APPEND), b"a"),
    lambda: os.writev(os.open(f"{folder}/old", os.O_WRONLY | os.O_APPEND), [b"a"]),
    lambda: os.fsync(os.open(f"{folder}/old", os.O_WRONLY)),
    lambda: os.ftruncate(os.open(f"{folder}/old", os.O_WRONLY), 9),
    lambda: os.replace(f"{folder}/old", f"{folder}/old"),
    lambda: os.read(os.open(f"{folder}/old", os.O_RDONLY), 1),
):
    try:
        act()
        print(0)
    except OSError as error:
        print(error.errno)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_faulty_disk_refuses_what_is_written_below_its_folder_alone(tmp_path: Path) -> None:
    library, control = machine.library(tmp_path), Control(tmp_path / "control")
    full, failing = errno.ENOSPC, errno.EIO
    expected = {"": [0] * 7, "full": [full, full, full, 0, full, full, 0], "failing": [failing] * 6 + [0]}
    for kind, wanted in (*expected.items(), ("slow", [0] * 7)):
        for name in ("state", "elsewhere"):
            folder = tmp_path / f"{name}-{kind}"
            folder.mkdir()
            (folder / "old").write_text("text")
            environment = {
                "LD_PRELOAD": str(library),
                "LD_FAULTY_FOLDER": str(tmp_path / "state-"),
                "LD_FAULTY_CONTROL": str(tmp_path / "control"),
            }
            control.set(kind, 1)
            done = subprocess.run(
                [sys.executable, "-c", _WRITES, str(folder)],
                env=os.environ | environment,
                capture_output=True,
                text=True,
                check=True,
            )
            control.set("")
            found = [int(line) for line in done.stdout.split()]
            assert found == (wanted if name == "state" else [0] * 7), (kind, name)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("jump", [0, 3600, -90_000])
def test_the_clock_jumps_and_timers_run_on(tmp_path: Path, jump: int) -> None:
    library, control = machine.library(tmp_path), Control(tmp_path / "control")
    control.set("clock", jump)
    before = time.time(), time.monotonic()
    environment = {"LD_PRELOAD": str(library), "LD_FAULTY_FOLDER": "/nowhere/", "LD_FAULTY_CONTROL": str(control.file)}
    looks = "import time, datetime; print(time.time(), datetime.datetime.now().timestamp(), time.monotonic())"
    done = subprocess.run([sys.executable, "-c", looks], env=os.environ | environment, capture_output=True, text=True)
    wall, also, timer = map(float, done.stdout.split())
    assert wall - before[0] == pytest.approx(jump, abs=30) and also - wall == pytest.approx(0, abs=1)
    assert 0 <= timer - before[1] < 30


_FILLS = """
import sys
print("begun", flush=True)
sys.stdin.readline()
try:
    bytearray(2**28)
except MemoryError:
    print("none")
else:
    print("some")
"""


def test_a_process_may_take_no_more_memory_than_it_has() -> None:
    for is_limited in (True, False):
        with subprocess.Popen(
            [sys.executable, "-c", _FILLS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None and process.stdout.readline() == "begun\n"
            with machine._no_more("memory", [process.pid] if is_limited else []):
                said, _ = process.communicate("\n")
        assert said.strip() == ("none" if is_limited else "some")
