"""What traces cost: the gateway for the client's header, and the swapper for a look at a large journal."""

import timeit
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from benchmarks.bars import Bar, Tell
from benchmarks.seen.journal import DAYS, fill
from burnish.journal import Journal
from burnish.journal.listing import Place
from burnish.server.gateway.call import NO_BODY_LABELS
from burnish.server.gateway.labels import labels_of
from burnish.server.rollout.traces.otlp import Otlp
from burnish.server.rollout.traces.reading import Look
from burnish.server.rollout.traces.told import Told

HEADERS = {
    b"host": "127.0.0.1:8700",
    b"authorization": "Bearer sk-burnish-0123456789",
    b"content-type": "application/json",
    b"content-length": "512",
    b"user-agent": "OpenAI/Python 2.25",
    b"accept": "application/json",
    b"x-stainless-lang": "python",
}
SENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
N_CALLS = 100_000
N_LOOKS = 20
BARS: tuple[Bar, ...] = (
    ("a request without `traceparent`: its field, µs", "trace_off_us", "< 0.2", lambda f: f["trace_off_us"] < 0.2),
    ("a request with `traceparent`: checked and kept, µs", "trace_on_us", "< 3", lambda f: f["trace_on_us"] < 3),
    ("a look for new spans that finds none, ms", "trace_look_ms", "≤ 50", lambda f: f["trace_look_ms"] <= 50),
    ("spans found, made and encoded, a second", "trace_spans_per_s", "≥ 500", lambda f: f["trace_spans_per_s"] >= 500),
)


def measure(folder: Path, tell: Tell, turns: int) -> dict[str, float]:
    """The figures of the part `traces`."""
    tell("the client's header")
    figures = of_the_gateway()
    folder.mkdir(parents=True)
    journal = Journal.open(f"sqlite:///{folder / 'journal.db'}")
    fill(journal, "agent", turns, tell)
    tell(f"looks at {turns:,} turns")
    figures |= of_a_look(journal)
    journal.close()
    return figures


def of_the_gateway() -> dict[str, float]:
    """Microseconds that the header adds to a request, if it has none and if it has one."""
    record: dict[str, Any] = {"route": "chat", "quoted_by": None, "upstream": None, "retry": 0, "messages": "x" * 500}
    empty, full = {**record, "traceparent": None}, {**record, "traceparent": SENT}
    traced = {**HEADERS, b"traceparent": SENT}
    encode = msgspec.json.encode
    checked = _added(lambda: labels_of(traced, NO_BODY_LABELS), lambda: labels_of(HEADERS, NO_BODY_LABELS))
    return {
        "trace_off_us": _added(lambda: encode(empty), lambda: encode(record)),
        "trace_on_us": checked + _added(lambda: encode(full), lambda: encode(record)),
    }


def of_a_look(journal: Journal) -> dict[str, float]:
    """How long a look takes that finds nothing, and how many spans a second come out of the middle of the journal."""
    sender = Otlp(_Nowhere())
    with journal.read() as session:
        newest = Told.until(session, _newest(journal))

    def look(told: Told, horizon: float) -> tuple[int, Told]:
        with journal.read() as session:
            found = Look(session, told, horizon, sender.is_sampled, has_content=False).take()
        assert sender.send(found.spans)
        return len(found.spans), found.told

    horizon = newest.turns.at + 10.0
    quiet = min(timeit.repeat(lambda: look(newest, horizon), number=1, repeat=N_LOOKS))
    middle = Place(newest.turns.at - DAYS / 2 * 86_400, "")
    told = Told(0.0, middle, middle, middle, 0, 0)
    n_spans = 0

    def many() -> None:
        nonlocal told, n_spans
        for _ in range(N_LOOKS):
            n, told = look(told, horizon)
            n_spans += n

    seconds = timeit.timeit(many, number=1)
    return {"trace_look_ms": quiet * 1e3, "trace_spans_per_s": n_spans / seconds}


class _Nowhere(SpanExporter):
    """Encodes spans and sends them nowhere."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        encode_spans(spans).SerializeToString()
        return SpanExportResult.SUCCESS


def _newest(journal: Journal) -> float:
    with journal.engine.connect() as connection:
        return float(connection.exec_driver_sql("SELECT max(ended_at) FROM interaction").scalar_one())


def _added(work: Callable[[], object], less: Callable[[], object]) -> float:
    """Microseconds that `work` takes beyond `less`: the best of each, in turns."""
    longer, shorter = [], []
    for _ in range(15):
        longer.append(timeit.timeit(work, number=N_CALLS))
        shorter.append(timeit.timeit(less, number=N_CALLS))
    return (min(longer) - min(shorter)) / N_CALLS * 1e6
