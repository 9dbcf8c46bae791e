"""What a long journal costs: the same work on a journal of many turns and on a short one, on SQLite.

The long journal is `benchmarks.seen.journal`'s, written once and then copied many times under other names and earlier
times. For each turn it has another text, and for each fourth another part of a prompt. Both have the same number of
waiting turns and of open jobs, so that only the length differs. The two take turns in each measurement.
"""

import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.bars import Tell
from benchmarks.gateway import ours as gateways
from benchmarks.gateway import servers
from benchmarks.gateway.load import Job
from benchmarks.gateway.rounds import quantile
from benchmarks.ingest import idle, ours, traffic
from benchmarks.ingest.traffic import Shape
from benchmarks.seen.journal import fill
from burnish.adapters.serving.prepare import admin_key_file, prepare
from burnish.config import Settings
from burnish.journal import Journal, jobs
from burnish.journal.blobs import DAY, N_BYTES, N_DAY, PART
from burnish.journal.tables import JudgeJob
from burnish.learner.run.ledger import Ledger
from tests.e2e.whole import free_port

AGENT = "agent"
SHORT = 6000
"""Turns of the short journal: enough for every page to be full."""
FILLED = 200_000
"""Turns that are written one by one; the rest are copies."""
WAITING, OPEN = 16, 500
"""Turns that wait for a step, and judge jobs that are open."""
DAYS = 365
SHIFT = 31 * 86_400
"""Seconds by which a copy is earlier than the one before."""
ROUNDS = 7
RATE = 200.0
CONVERSATIONS = 1500
LOOKS = 200
NAMES: Mapping[str, tuple[str, ...]] = {
    "interaction": ("interaction_id", "request_id", "session_id", "parent_id"),
    "session": ("session_id",),
    "next_state": ("interaction_id", "follower_id"),
    "feedback": ("feedback_id", "target", "interaction_id", "session_id"),
    "judgement": ("judgement_id", "interaction_id"),
    "judge_job": ("subject",),
}
"""Columns that name a row or another one, by table. Rows of steps are not copied: there are no more steps."""
HASHES = frozenset({"request_hash", "tail_hash", "suffix_hash", "words_hash"})
TIMES = frozenset({"started_at", "ended_at", "last_at", "closed_at", "created_at"})
ROUTES = (
    *("/admin/agents", "/admin/agents/agent", "/admin/agents/agent/status", "/admin/agents/agent/turns"),
    *("/admin/agents/agent/turns?fate=ready", "/admin/agents/agent/turns?version=12", "/admin/agents/agent/versions"),
    *("/admin/agents/agent/feedback", "/admin/agents/agent/learner", "/admin/agents/agent/learner/runs"),
    *("/admin/agents/agent/judges", "/admin/agents/agent/judges/label", "/admin/audit"),
    "/admin/agents/agent/versions/12",
)


def measure(folder: Path, n_turns: int, tell: Tell) -> dict[str, float]:
    """The ratios, long over short, and the slowest twentieth of admin requests on the long journal."""
    with idle.stub() as engine, ExitStack() as stack:
        short, long = (_settings(folder / name, engine, n, tell) for name, n in (("short", SHORT), ("long", n_turns)))
        found: dict[str, float] = {}
        tell("big: leases and ready turns")
        for name, look in (("lease", _lease), ("ready", _ready)):
            small, large = _in_turn(short, long, look)
            found |= {f"big_{name}_ms": large, f"big_{name}": large / small}
        tell("big: linking")
        small, large = (_linking(settings) for settings in (short, long))
        found |= {"big_linking_us": large, "big_linking": large / small}
        for settings in (short, long):
            stack.enter_context(gateways.serving(settings))
            stack.enter_context(ours.ingester(settings))
        tell("big: capture")
        small, large = _captured(short, long)
        found |= {"big_capture_p99_ms": large, "big_capture": large / small}
        for settings in (short, long):
            ours.wait_until_filed(settings)
        small, large = _admin(short, long, tell)
        return {**found, "big_admin_p95_ms": large, "big_admin": large / small, "big_turns": float(n_turns)}


def _settings(folder: Path, engine: str, n_turns: int, tell: Tell) -> Settings:
    settings = gateways.settings_for(folder, free_port(), engine)
    journal = prepare(settings)
    n_filled = min(n_turns, FILLED)
    fill(journal, AGENT, n_filled, tell)
    journal.close()
    with closing(sqlite3.connect(folder / "journal.db", isolation_level=None)) as line:
        for pragma in ("synchronous=OFF", "cache_size=-4000000", "temp_store=MEMORY"):
            line.execute(f"PRAGMA {pragma}")
        n_copies = -(-n_turns // n_filled) - 1
        tables = {name: _copying(line, name) for name in NAMES} if n_copies else {}
        for number in range(1, n_copies + 1):
            if number % 5 == 1:
                tell(f"big: copy {number} of {n_copies}")
            line.execute("BEGIN")
            for statement in tables.values():
                line.execute(statement, {"n": number})
            line.execute("COMMIT")
        tell("big: texts and parts of prompts")
        for statement, n in ((_TEXTS, n_turns), (_PARTS, n_turns // 4)):
            line.execute(statement, {"n": n, "first": int(time.time() / DAY) - DAYS, "days": DAYS + 1})
        _equalise(line)
        line.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return settings


_NUMBERS = "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :n)"
_KEY = f"printf('%0{N_DAY}x', :first + n * :days / :n)"
_TEXTS = f"{_NUMBERS} INSERT INTO blob SELECT {_KEY} || lower(hex(randomblob(30))), hex(randomblob(60)) FROM number"
_PARTS = (
    f"{_NUMBERS} INSERT INTO prompt_part SELECT {_KEY} || lower(hex(randomblob(18))), zeroblob({PART * N_BYTES}) "
    "FROM number"
)
"""Under keys of the last year (`DAYS`)."""


def _copying(line: sqlite3.Connection, table: str) -> str:
    """The statement that copies the rows that are there now, as number `n`."""
    columns = [str(row[1]) for row in line.execute(f"PRAGMA table_info({table})")]
    last = line.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0]
    shown = []
    for column in columns:
        if column in NAMES[table]:
            shown.append(f"printf('k%d-', :n) || {column}")
        elif column in HASHES:
            shown.append("lower(hex(randomblob(20)))")
        elif column in TIMES:
            shown.append(f"{column} - :n * {SHIFT}")
        elif (table, column) == ("judge_job", "state"):
            shown.append("'done'")
        else:
            shown.append(column)
    return f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(shown)} FROM {table} WHERE rowid <= {last}"


def _equalise(line: sqlite3.Connection) -> None:
    """Leave the newest waiting turns and open jobs."""
    waits = "agent = 'agent' AND is_ready IS 1 AND spent_step IS NULL AND skip_reason IS NULL"
    line.execute(
        "UPDATE interaction SET skip_reason = 'stale: 5 versions behind' WHERE rowid IN "
        f"(SELECT rowid FROM interaction WHERE {waits} ORDER BY ended_at DESC LIMIT -1 OFFSET ?)",
        (WAITING,),
    )
    line.execute(
        "UPDATE judge_job SET state = 'done' WHERE rowid IN (SELECT rowid FROM judge_job WHERE state = 'queued' "
        "ORDER BY created_at DESC LIMIT -1 OFFSET ?)",
        (OPEN,),
    )


@contextmanager
def _open(settings: Settings) -> Iterator[Journal]:
    journal = Journal.at(settings.journal_url)
    try:
        yield journal
    finally:
        journal.close()


def _in_turn(short: Settings, long: Settings, look: Callable[[Journal], None]) -> tuple[float, float]:
    """The median times of `look` on each, in ms."""
    spent: tuple[list[float], list[float]] = ([], [])
    with _open(short) as small, _open(long) as large:
        for _ in range(LOOKS):
            for times, journal in zip(spent, (small, large), strict=True):
                began = time.perf_counter()
                look(journal)
                times.append(1000 * (time.perf_counter() - began))
    return statistics.median(spent[0]), statistics.median(spent[1])


class _Undone(Exception):
    """Takes a lease back."""


def _lease(journal: Journal) -> None:
    try:
        with journal.write() as session:
            assert len(jobs.lease(session, JudgeJob, "benchmark", limit=8)) == 8
            raise _Undone
    except _Undone:
        pass


def _ready(journal: Journal) -> None:
    ledger = Ledger(journal, AGENT)
    assert len(ledger.ready_ids(WAITING)) == ledger.count_ready()[0] == WAITING


def _linking(settings: Settings) -> float:
    """CPU time of the ingester for a turn, in µs."""
    written = traffic.write(settings.segments_dir, Shape(), CONVERSATIONS)
    return ours.measure(settings, written.n_turns).us_per_turn


def _captured(short: Settings, long: Settings) -> tuple[float, float]:
    """The slowest hundredth of requests at a fixed rate, in ms: the median over the rounds."""
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS):
        for times, settings in zip(found, (short, long), strict=True):
            asked: dict[str, Any] = {"seconds": 3.0, "rate": RATE, "seed": number, "key": _key(settings)}
            seen = servers.load(Job(settings.gateway.port, connections=16, model=f"{AGENT}@v0", **asked))
            assert not seen.n_failed
            times.append(quantile(seen.latencies, 0.99))
    return statistics.median(found[0]), statistics.median(found[1])


def _admin(short: Settings, long: Settings, tell: Tell) -> tuple[float, float]:
    """The slowest twentieth of all admin requests, in ms."""
    found: tuple[list[float], list[float]] = ([], [])
    with ExitStack() as stack:
        clients = [stack.enter_context(_client(settings)) for settings in (short, long)]
        for route in ROUTES:
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(20):
                for mine, client in zip(times, clients, strict=True):
                    began = time.perf_counter()
                    client.get(route).raise_for_status()
                    mine.append(1000 * (time.perf_counter() - began))
            half, slow = ([quantile(mine, at) for mine in times] for at in (0.5, 0.95))
            shown = f"{half[0]:.1f} and {slow[0]:.1f} ms, {half[1]:.1f} and {slow[1]:.1f} ms on the long journal"
            tell(f"big: {route}: median and p95 {shown}")
            found[0].extend(times[0])
            found[1].extend(times[1])
    return quantile(found[0], 0.95), quantile(found[1], 0.95)


def _client(settings: Settings) -> httpx.Client:
    headers = {"authorization": f"Bearer {_key(settings)}"}
    return httpx.Client(base_url=f"http://127.0.0.1:{settings.gateway.port}", headers=headers, timeout=600.0)


def _key(settings: Settings) -> str:
    return admin_key_file(settings).read_text(encoding="utf-8").strip()
