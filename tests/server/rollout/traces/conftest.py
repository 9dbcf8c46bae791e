"""A world whose records are told at once, however new they are."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from burnish.server.ingest import ingester
from burnish.server.rollout.traces import tail
from tests.server.rollout.traces.trace_world import TraceWorld


@pytest.fixture
def without_margins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tail, "MARGIN", 0.0)
    monkeypatch.setattr(ingester, "SETTLE_SECONDS", -1.0)


@pytest.fixture
def world(tmp_path: Path, without_margins: None) -> Iterator[TraceWorld]:
    made = TraceWorld(tmp_path)
    yield made
    made.close()
