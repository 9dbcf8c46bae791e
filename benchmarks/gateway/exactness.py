"""After all the load: the journal holds exactly the requests that were answered, each once, or the run fails."""

import sys
import time

from sqlalchemy import func, select

from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.tables import InteractionRow
from server.ingest import Ingester


def check(settings: Settings, request_ids: list[str]) -> tuple[int, float]:
    """(turns in the journal, turns ingested per second); ends the run where they are not the requests that were sent."""
    journal = Journal.open(settings.journal_url)
    ingester = Ingester(journal, settings.segments_dir, session_ttl=1e9)
    time.sleep(0.1)  # the watermark
    started = time.perf_counter()
    while ingester.run_once():
        pass
    seconds = time.perf_counter() - started
    columns = InteractionRow.__table__.c  # type: ignore[attr-defined]
    with journal.read() as session:
        found = set(session.scalars(select(columns.request_id)))
        n_rows = session.scalar(select(func.count()).select_from(InteractionRow)) or 0
        n_bad = session.scalar(select(func.count()).select_from(InteractionRow).where(columns.quarantine.is_not(None)))
    journal.close()
    sent = set(request_ids)
    if found != sent or n_rows != len(request_ids) or n_bad:
        sys.exit(
            f"the journal is wrong: {len(request_ids)} requests answered, {n_rows} turns, {len(sent - found)} missing, "
            f"{len(found - sent)} that nobody sent, {n_bad} quarantined"
        )
    return n_rows, n_rows / seconds
