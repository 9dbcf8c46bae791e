"""After all the load, the journal must hold each answered request exactly once. Otherwise the run fails."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait

from sqlalchemy import func, select

from benchmarks.bars import Tell
from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.tables import InteractionRow
from burnish.server.ingest.ingester import Ingester

TELL_SECONDS = 10.0


def check(settings: Settings, request_ids: list[str], tell: Tell) -> tuple[int, float]:
    """(Turns in the journal, turns ingested per second).

    Ends the run if the turns differ from the answered requests.
    """
    journal = Journal.open(settings.journal_url)
    ingester = Ingester(journal, settings.segments_dir, session_timeout=1e9)
    time.sleep(0.1)  # the watermark
    started = time.perf_counter()
    with ThreadPoolExecutor(1) as pool:
        drained = pool.submit(_drain, ingester)
        while wait([drained], TELL_SECONDS).not_done:
            tell(f"the journal: {_n_rows(journal):,} of {len(request_ids):,} turns")
        drained.result()
    seconds = time.perf_counter() - started
    columns = InteractionRow.__table__.c  # type: ignore[attr-defined]
    with journal.read() as session:
        found = set(session.scalars(select(columns.request_id)))
        n_bad = session.scalar(select(func.count()).select_from(InteractionRow).where(columns.quarantine.is_not(None)))
    n_rows = _n_rows(journal)
    journal.close()
    sent = set(request_ids)
    if found != sent or n_rows != len(request_ids) or n_bad:
        sys.exit(
            f"expected one sound turn for each of {len(request_ids)} answered requests, got {n_rows} turns: "
            f"{len(sent - found)} missing, "
            f"{len(found - sent)} without a request, {n_bad} quarantined"
        )
    return n_rows, n_rows / seconds


def _drain(ingester: Ingester) -> None:
    while ingester.run_once():
        pass


def _n_rows(journal: Journal) -> int:
    with journal.read() as session:
        return session.scalar(select(func.count()).select_from(InteractionRow)) or 0
