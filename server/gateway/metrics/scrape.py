"""`GET /metrics`: the figures of every part in Prometheus's text format.

A scrape cannot hurt serving. It runs in a thread, one at a time in each process, its answer stands for `FRESH` seconds,
and its queries end after `PATIENCE` seconds. A part that cannot be read is left out, and `burnish_scrape_ok` says so.
"""

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import structlog
from fastapi import APIRouter, Depends
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, col

from burnish import serving_table
from burnish.adapters.registry.learning_state import learning_state
from burnish.config import Settings, overrides
from burnish.errors import BurnishError, Overloaded
from burnish.journal import Journal
from burnish.journal.tables import AgentRow
from burnish.keys import Scope
from burnish.segments.file import aside_of
from burnish.segments.lag import lag
from burnish.server.gateway.access.keyring import Holder
from burnish.server.gateway.access.need import Reach, need
from burnish.server.gateway.metrics import from_engines, from_gateways, from_journal, published

PATH = "/metrics"
FRESH = 1.0
PATIENCE = 3.0
"""Seconds for the queries of one part of the figures."""
MAX_STATES = 20
"""Agents whose state of learning is looked at. Their series say which; all others count as fine."""
LOOK = 20_000
"""SQLite's steps between two looks at the clock."""
log = structlog.get_logger(__name__)


class Scraper(Collector):
    """One per gateway process. `text` is called in threads."""

    def __init__(self, settings: Settings, journal: Journal) -> None:
        self._settings = settings
        self._journal = journal
        self._routes = serving_table.watch(settings.run_dir / "routes.json")
        self._is_busy = threading.Lock()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._text: bytes | None = None
        self._made_at = 0.0

    def text(self) -> bytes:
        """All figures. While another thread gathers them, the last ones. Raises Overloaded before there were any."""
        if not self._is_busy.acquire(blocking=False):
            if self._text is None:
                raise Overloaded("the figures are being gathered; please try again")
            return self._text
        try:
            if self._text is None or time.monotonic() - self._made_at > FRESH:
                self._text = generate_latest(self._registry)
                self._made_at = time.monotonic()
            return self._text
        finally:
            self._is_busy.release()

    def collect(self) -> Iterator[Metric]:
        """The figures of each part, and whether it could be read."""
        ok = GaugeMetricFamily("burnish_scrape_ok", "1: the figures of this part could be read.", labels=("part",))
        parts: dict[str, Callable[[], Iterable[Metric]]] = {
            "gateways": self._gateways,
            "disk": self._disk,
            "segments": self._segments,
            "journal": self._from_journal,
            "learning": self._learning,
            "engines": lambda: from_engines.families(self._routes.current()),
        }
        for part, read in parts.items():
            try:
                yield from list(read())
                ok.add_metric((part,), 1.0)
            except (SQLAlchemyError, BurnishError, OSError, ValueError, KeyError, TypeError) as error:
                log.warning("a part's figures cannot be read", figures=part, error=repr(error)[:300])
                ok.add_metric((part,), 0.0)
        yield ok

    def _gateways(self) -> Iterator[Metric]:
        published.fold(self._settings.run_dir)
        return from_gateways.families(published.totals(self._settings.run_dir))

    def _disk(self) -> Iterator[Metric]:
        free = shutil.disk_usage(self._settings.state_dir).free
        yield GaugeMetricFamily("burnish_disk_free_bytes", "Free space below the state directory.", value=free)

    def _segments(self) -> Iterator[Metric]:
        folder = self._settings.segments_dir
        with self._reading() as session:
            late = lag(session, folder, time.time())
        yield GaugeMetricFamily(
            "burnish_ingest_lag_seconds", "Age of the oldest record that the journal does not have.", value=late
        )
        n_aside = len(list(aside_of(folder).glob("*.seg")))
        yield GaugeMetricFamily("burnish_segments_set_aside", "Segments that could not be read.", value=n_aside)

    def _from_journal(self) -> Iterator[Metric]:
        with self._reading() as session:
            yield from list(from_journal.families(session))

    def _learning(self) -> Iterator[Metric]:
        alarm = GaugeMetricFamily(
            "burnish_learning_alarm",
            "1: nothing trains although the traffic should suffice, or nothing can go live.",
            labels=("agent",),
        )
        with self._reading() as session:
            wanted = select(AgentRow).where(col(AgentRow.parent).is_(None)).order_by(col(AgentRow.created_at))
            for row in session.scalars(wanted.limit(MAX_STATES)):
                own = overrides.laid_over(self._settings, row.settings)
                alarm.add_metric((row.name,), learning_state(session, own, row.name).is_alarm)
        yield alarm

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        """A session whose queries end, with an error, after `PATIENCE` seconds."""
        with self._journal.read() as session:
            connection = session.connection()
            if connection.dialect.name != "sqlite":
                connection.execute(text(f"SET LOCAL statement_timeout = {int(PATIENCE * 1000)}"))
                yield session
                return
            until = time.monotonic() + PATIENCE
            raw = connection.connection.driver_connection
            assert raw is not None
            raw.set_progress_handler(lambda: time.monotonic() > until, LOOK)
            try:
                yield session
            finally:
                raw.set_progress_handler(None, 0)


def router(settings: Settings, journal: Journal) -> APIRouter:
    """`GET /metrics`."""
    made, scraper = APIRouter(), Scraper(settings, journal)

    @made.get(
        PATH,
        tags=["metrics"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        dependencies=[Depends(Holder(settings, need(Reach.NOTHING, Scope.METRICS)))],
    )
    def metrics() -> Response:
        """The figures of every part in Prometheus's text format."""
        return Response(scraper.text(), media_type=CONTENT_TYPE_LATEST)

    return made
