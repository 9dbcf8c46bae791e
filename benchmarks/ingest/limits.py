"""The limit: the same rows in the same tables and transactions, with bare `executemany` calls and nothing else."""

import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from benchmarks.gateway.servers import GATEWAY_CORE
from burnish.journal import Journal

TABLES = ("blob", "prompt_part", "session", "interaction", "next_state", "judge_job")
BATCH = 128
"""Turns of a transaction, about as many as the ingester's have."""


def bare_sqlite(full: Path, folder: Path) -> float:
    """Turns a second that SQLite alone stores, from the rows of the journal `full`."""
    folder.mkdir()
    Journal.open(f"sqlite:///{folder / 'journal.db'}").close()
    with closing(sqlite3.connect(full)) as source, closing(sqlite3.connect(folder / "journal.db")) as target:
        target.isolation_level = None
        target.execute("PRAGMA synchronous=NORMAL")
        rows = {table: source.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall() for table in TABLES}
        n_turns = len(rows["interaction"])
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {GATEWAY_CORE % (os.cpu_count() or 1)})
        started = time.perf_counter()
        for at in range(0, n_turns, BATCH):
            target.execute("BEGIN IMMEDIATE")
            for table, values in rows.items():
                some = values[len(values) * at // n_turns : len(values) * min(at + BATCH, n_turns) // n_turns]
                if some:
                    target.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(some[0]))})", some)
            target.execute("COMMIT")
        seconds = time.perf_counter() - started
        os.sched_setaffinity(0, before)
    shutil.rmtree(folder)
    return n_turns / seconds


def bytes_of(file: Path) -> int:
    """The size of a SQLite file with everything in it that was committed."""
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return file.stat().st_size
