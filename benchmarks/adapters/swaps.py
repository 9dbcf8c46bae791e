"""`failed`, `wrong_version`: swaps and rollbacks under load.

Every reply's text and every journal row is checked against its version.
"""

import time
from pathlib import Path

from sqlalchemy import select

from benchmarks.adapters import load, stand
from benchmarks.adapters.clients import AGENT, Job
from benchmarks.adapters.stand import Stand
from benchmarks.adapters.words import voice_of, words_of
from benchmarks.bars import Bar, Tell
from burnish.journal.tables import BlobRow, InteractionRow
from burnish.records import VersionName

N_SWAPS, N_ROLLBACKS = 1000, 100
BARS: tuple[Bar, ...] = (
    ("failed requests, 1,000 swaps and 100 rollbacks under load", "failed", "0", lambda f: f["failed"] == 0),
    ("replies and rows of a wrong version", "wrong_version", "0", lambda f: f["wrong_version"] == 0),
)


def measure(folder: Path, tell: Tell) -> dict[str, float]:
    """Every tenth swap is followed by a rollback through the admin API."""
    with stand.running(folder) as whole:
        return _measure(whole, N_SWAPS, N_ROLLBACKS, tell)


def _measure(whole: Stand, n_swaps: int, n_rollbacks: int, tell: Tell) -> dict[str, float]:
    every = max(1, n_swaps // max(1, n_rollbacks))
    if not whole.newest:
        whole.swap()
    started, n_back = time.monotonic(), 0
    with whole.admin() as admin, load.running(Job(whole.port, len(whole.voices))) as clients:
        for i in range(1, n_swaps + 1):
            whole.swap()
            if i % 25 == 0:
                tell(f"{i} of {n_swaps} swaps, {n_back} rollbacks, {i / (time.monotonic() - started):.2f} swaps/s")
            if i % every == 0 and n_back < n_rollbacks:
                whole.rollback(admin)
                n_back += 1
    seconds, seen = time.monotonic() - started, clients.seen
    tell("reading the journal")
    n_rows, n_wrong_rows = _rows(whole, {request_id: version for *_, version, request_id in seen.answers})
    for fault in seen.faults[:5]:
        tell(fault)
    return {
        "failed": seen.n_failed,
        "wrong_version": seen.n_wrong + n_wrong_rows,
        "swaps": n_swaps,
        "rollbacks": n_back,
        "requests": seen.n_ok + seen.n_failed,
        "rows_checked": n_rows,
        "swaps_per_s": n_swaps / seconds,
        "swap_ms_median": 1e3 * sorted(live - asked for _, asked, live in whole.spans[-n_swaps:])[n_swaps // 2],
    }


def _rows(whole: Stand, headers: dict[str, str]) -> tuple[int, int]:
    """(Rows of the answered requests, rows among them that are wrong).

    A wrong row has another version than the header's or another version's text.
    """
    deadline = time.monotonic() + 120
    turn, blob = InteractionRow.__table__.c, BlobRow.__table__.c  # type: ignore[attr-defined]
    query = select(turn.request_id, turn.agent, turn.version, blob.body).join(BlobRow, turn.reply_digest == blob.digest)
    while True:
        with whole.journal.read() as session:
            rows = {row[0]: row for row in session.execute(query) if row[0] in headers}
        if len(rows) == len(headers) or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    n_wrong = len(headers) - len(rows)
    for request_id, agent, version, body in rows.values():
        words = words_of(voice_of(version, len(whole.voices)))
        has_right_words = not version or f'"{words}"' in body
        n_wrong += not (has_right_words and headers[request_id] == str(VersionName(agent, version)) and agent == AGENT)
    return len(rows), n_wrong
