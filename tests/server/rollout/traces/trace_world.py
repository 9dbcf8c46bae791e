"""The world of the traces' tests: a journal filled by the real ingester, and a tail that sends to memory."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from burnish.adapters.registry import lifecycle
from burnish.adapters.serving.prepare import prepare
from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.tables import InteractionRow, SampleRow, StepRow
from burnish.journal.turns import record_judgement
from burnish.records import Interaction, StepOutcome
from burnish.rewards import NEXT_STATE
from burnish.segments.frames import Record, encode
from burnish.server.ingest.ingester import Ingester
from burnish.server.rollout.traces.otlp import Otlp
from burnish.server.rollout.traces.tail import TraceTail
from tests.factories import feedback, interaction, judgement, user

TRACE, CLIENT_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = f"00-{TRACE}-{CLIENT_SPAN}-01"
NOT_SAMPLED = f"00-{TRACE}-{CLIENT_SPAN}-00"


class TraceWorld:
    """A state directory with a tail. What happens in it happens now."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(state_dir=folder)
        self.journal: Journal = prepare(self.settings)
        self.settings.segments_dir.mkdir(parents=True, exist_ok=True)
        self.exporter = InMemorySpanExporter()
        self.tail = self.restarted()
        self.n_versions = 0

    def restarted(self, *, has_content: bool = False) -> TraceTail:
        """A tail like that of a new process."""
        self.tail = TraceTail(self.journal, self.settings, Otlp(self.exporter), has_content=has_content)
        return self.tail

    def write(self, *records: Record) -> None:
        with (self.settings.segments_dir / "a.seg").open("ab") as file:
            file.write(b"".join(map(encode, records)))

    def ingest(self) -> None:
        Ingester(self.journal, self.settings.segments_dir, session_timeout=1e12).run_once()

    def say(self, name: str, text: str = "hi", **changes: Any) -> Interaction:
        """A reply that has just ended, in the journal."""
        now = time.time()
        times = {"started_at": now - 1.5, "ended_at": now}
        turn = interaction([user(f"{name}: {text}")], interaction_id=name, **times | changes)
        self.write(turn)
        self.ingest()
        return turn

    def rate(self, name: str, rating: float | None, **changes: Any) -> None:
        self.write(feedback(name, rating, created_at=time.time(), **changes))
        self.ingest()

    def judge(self, name: str, score: int | None, hint: str | None = None, **changes: Any) -> None:
        made = judgement(name, score, hint, created_at=time.time(), **changes)
        with self.journal.write() as session:
            assert record_judgement(session, made, NEXT_STATE)

    def begin_step(self, *names: str, **sample: Any) -> StepRow:
        self.n_versions += 1
        now = time.time()
        fields: dict[str, Any] = {"parent": self.n_versions - 1, "outcome": StepOutcome.OPEN, "metrics": {}}
        with self.journal.write() as session:
            step = StepRow(agent="agent", version=self.n_versions, started_at=now, **fields)
            session.add(step)
            session.flush()
            assert step.step_id is not None
            for name in names:
                session.add(SampleRow(step_id=step.step_id, interaction_id=name, record_ids=[], **sample))
        return step

    def announce(self, step: StepRow) -> int:
        number = step.version
        with self.journal.write() as session:
            lifecycle.announce(session, "agent", number, parent=step.parent, step_id=step.step_id, digest=f"d{number}")
        return number

    def publish(self, *names: str, **sample: Any) -> int:
        """A version that a step made from the turns `names`, not decided yet."""
        return self.announce(self.begin_step(*names, reward=1.0, reward_source="user", **sample))

    def promote(self, number: int, expected: int, actor: str = "gate") -> None:
        with self.journal.write() as session:
            lifecycle.promote(session, "agent", number, expected=expected, actor=actor, reason="passed")

    def refuse(self, number: int) -> None:
        with self.journal.write() as session:
            lifecycle.refuse(session, "agent", number, reason="unlearned 9 of 64", evidence={})

    def close_step(self, step: StepRow, outcome: StepOutcome, reason: str) -> None:
        assert step.step_id is not None
        with self.journal.write() as session:
            lifecycle.close_step(session, step.step_id, outcome, reason)

    def erase(self, name: str) -> None:
        with self.journal.write() as session:
            session.delete(session.get_one(InteractionRow, name))

    async def look(self) -> Sequence[ReadableSpan]:
        """What the tail sends now."""
        self.exporter.clear()
        while await self.tail.run_once():
            pass
        return self.exporter.get_finished_spans()

    def close(self) -> None:
        self.tail.close()
        self.journal.close()


def names(spans: Sequence[ReadableSpan]) -> list[str]:
    return [span.name for span in spans]


def ids(span: ReadableSpan) -> tuple[int, int, int | None]:
    """Trace, span, and parent."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id, span.parent.span_id if span.parent is not None else None
