"""The faults of `faults.py` under a server that learns: no reply is trained on twice, and none is forgotten.

The sandbox's model on a real vLLM, which the supervisor starts again. Clients rate every reply, so steps follow each
other, versions go on trial and are swapped while parts die. `sqlite3` alone reads the journal afterwards.
"""

import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from benchmarks.bars import Tell
from benchmarks.chaos import faults
from benchmarks.chaos.ledger import GRACE, Clients, Ledger, audit, wait_filed
from benchmarks.chaos.stand import PATIENCE, Parts, begin, n_lost_adapters
from burnish.adapters.files.store import AdapterStore
from burnish.config import Settings
from tests.e2e.whole import Whole

MIN_ROWS = 4
LEARNS = {
    "learner.min_rows": MIN_ROWS,
    "learner.max_wait": 5.0,
    "learner.recipe.anchor_rows": 4,
    "gateway.processes": 1,
}
"""Steps follow each other. A half of `MIN_ROWS` begins one after `max_wait`, so fewer rows than that may wait for
ever.
"""
THINK = 0.5
_RATED = "interaction_id IN (SELECT interaction_id FROM feedback WHERE is_deleted = 0)"
_COUNTS = {
    "n_published": "SELECT count(*) FROM step WHERE outcome = 'published'",
    "n_open": "SELECT count(*) FROM step WHERE outcome = 'open'",
    "n_trained": "SELECT count(*) FROM interaction WHERE spent_step IS NOT NULL",
    "n_waiting": f"SELECT count(*) FROM interaction WHERE spent_step IS NULL AND skip_reason IS NULL AND {_RATED}",
    "n_skipped": f"SELECT count(*) FROM interaction WHERE skip_reason IS NOT NULL AND {_RATED}",
    "n_rated": f"SELECT count(*) FROM interaction WHERE {_RATED}",
    "live": "SELECT coalesce(max(version), 0) FROM version WHERE state = 'live'",
    "n_live": "SELECT count(*) FROM version WHERE state IN ('live', 'retired')",
}


def measure(folder: Path, seed: int, n: int, n_clients: int, tell: Tell) -> dict[str, float]:
    """Run the plan, wait until everything rated was learned, and audit the result."""
    folder = begin(folder)
    whole, ledger, done = Whole(folder / "state", LEARNS), Ledger(folder / "ledger.jsonl"), list[faults.Done]()
    settings = Settings(state_dir=whole.state)
    journal = settings.state_dir / "journal.db"
    whole.start()
    try:
        tell("learning: starting a server")
        whole.wait_ready()
        parts = Parts(whole, settings)
        parts.wait_all()
        key = (whole.state / "admin.key").read_text(encoding="utf-8").strip()
        with Clients(whole.url, ledger, n_clients, 10**6, think=THINK, key=key) as clients:
            for number, fault in enumerate(faults.plan(seed, n)):
                time.sleep(fault.pause)
                done.append(faults.suffer(parts, number, fault))
                counts = counted(journal)
                tell(
                    f"learning: fault {number + 1} of {n}: {fault.kind} {fault.part}; {ledger.n_whole} replies, "
                    f"{counts['n_published']} steps published, {counts['n_live']} versions went live"
                )
            time.sleep(2 * GRACE)
        tell("learning: waiting until all that was rated is learned")
        found = wait_filed(lambda: audit(journal, ledger), 60.0)
        counts = _settled(journal)
    finally:
        whole.stop()
    kept = AdapterStore(settings.adapters_dir).versions("agent")
    unexcused = faults.failed_by_others(ledger, done)
    for each in unexcused[:10]:
        print(f"failed by others: {each}", file=sys.stderr)
    return {
        "learning_faults": float(len(done)),
        "learning_turns": float(ledger.n_whole),
        "learning_lost": float(len(found.lost)),
        "learning_doubled": float(len(found.doubled)),
        "learning_failed_by_others": float(len(unexcused)),
        "learning_steps": float(counts["n_published"]),
        "learning_versions_live": float(counts["n_live"]),
        "learning_ratings": float(len(clients.rated)),
        "learning_ratings_lost": float(max(0, len(clients.rated) - counts["n_rated"])),
        "learning_trained": float(counts["n_trained"]),
        "learning_skipped": float(counts["n_skipped"]),
        "trained_twice": float(found.trained_twice),
        "stranded": float(counts["n_waiting"] if not _is_settled(counts) else 0),
        "learning_adapters_lost": float(n_lost_adapters(settings, {*kept, counts["live"]} - {0})),
    }


def counted(journal: Path) -> dict[str, int]:
    """What the journal says, read with `sqlite3` alone."""
    with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as database:
        return {name: database.execute(query).fetchone()[0] for name, query in _COUNTS.items()}


def _settled(journal: Path) -> dict[str, int]:
    """The counts once nothing is left to learn, or after `PATIENCE` seconds."""
    until = time.monotonic() + PATIENCE
    while not _is_settled(counts := counted(journal)) and time.monotonic() < until:
        time.sleep(1.0)
    return counts


def _is_settled(counts: dict[str, int]) -> bool:
    return counts["n_waiting"] < MIN_ROWS / 2 and counts["n_open"] == 0
