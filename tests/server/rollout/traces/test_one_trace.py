"""From the request of a traced client, over the gateway and the journal, to a receiver of OTLP: one trace."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from sqlalchemy import select

from burnish.journal.tables import InteractionRow
from burnish.server.rollout.traces import message_parts, spans, tail
from burnish.server.rollout.traces.tail import TraceTail
from burnish.testing import StubEngine
from tests.server.gateway.gateways import ENGINE_KEY, HELLO, Running, serve
from tests.server.rollout.traces.receiver import Receiver, receiving
from tests.server.rollout.traces.trace_world import CLIENT_SPAN, SENT, TRACE, TraceWorld


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20planted")
        yield running


@pytest.fixture
def gateway(world: TraceWorld) -> Iterator[Running]:
    """A gateway with the world's state directory."""
    engine = StubEngine(api_key=ENGINE_KEY, loaded={"agent@v1": "/a/1", "agent@v2": "/a/2"})
    with engine, serve(world.settings.state_dir, engine) as running:
        yield running


async def test_one_trace_goes_from_the_request_to_the_version(
    world: TraceWorld, receiver: Receiver, gateway: Running
) -> None:
    world.tail = TraceTail.of(world.journal, world.settings)
    await world.tail.run_once()
    reply = gateway.chat("talker", headers={"traceparent": SENT}, temperature=0.5).json()["id"]
    assert gateway.chat("talker", headers={"x-burnish-record": "false", "traceparent": SENT}).status_code == 200
    with gateway.client("voter") as client:
        said = client.post("/v1/feedback", json={"target": reply, "rating": 1.0, "comment": "good"})
        assert said.status_code < 300, said.text
    world.ingest()
    world.judge(reply, 1)
    world.promote(world.publish(reply), 0)
    while await world.tail.run_once():
        pass
    assert {span.trace for span in receiver.spans} == {TRACE}
    by_id = {span.span: span.name for span in receiver.spans} | {CLIENT_SPAN: "the client's"}
    assert [(span.name, by_id[span.parent]) for span in receiver.spans] == [
        ("chat agent", "the client's"),
        ("evaluate verdict", "chat agent"),
        ("evaluate rating", "chat agent"),
        ("train agent@v1", "chat agent"),
        ("trial agent@v1", "train agent@v1"),
    ]
    turn = receiver.spans[0].attributes
    assert (turn["gen_ai.response.id"], turn["gen_ai.response.model"]) == (reply, "agent@v2")
    assert (turn["gen_ai.request.temperature"], turn["gen_ai.response.finish_reasons"]) == (0.5, ["stop"])
    assert turn["gen_ai.usage.input_tokens"] > 0 and turn["gen_ai.usage.output_tokens"] > 0
    assert receiver.spans[-1].attributes["burnish.decision.outcome"] == "promoted"
    assert HELLO[0]["content"] not in str(receiver.spans)
    assert (receiver.services, receiver.headers["authorization"]) == ({"burnish"}, "Bearer planted")
    with world.journal.read() as session:
        assert list(session.scalars(select(InteractionRow.traceparent))) == [SENT]


async def test_words_leave_with_the_conventions_variable(
    world: TraceWorld, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    world.tail = TraceTail.of(world.journal, world.settings)
    await world.tail.run_once()
    world.say("t", "what is it?")
    await world.tail.run_once()
    (turn,) = receiver.spans
    assert "what is it?" in turn.attributes[message_parts.INPUT]


@pytest.mark.parametrize("status", [401, 503])
async def test_a_receiver_that_refuses_gets_the_spans_later(
    world: TraceWorld, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    monkeypatch.setattr(tail, "FIRST_PAUSE", 0.0)
    world.tail = TraceTail.of(world.journal, world.settings)
    await world.tail.run_once()
    world.say("t")
    receiver.status = status
    assert not await world.tail.run_once()
    assert receiver.n_requests and not receiver.spans
    receiver.status = 200
    await world.tail.run_once()
    assert [span.name for span in receiver.spans] == ["chat agent"]
    logging.getLogger("opentelemetry").setLevel(logging.NOTSET)


def test_the_conventions_names_exist() -> None:
    """Each `gen_ai.…` in the code is one of the installed package's."""
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    texts = [Path(module.__file__ or "").read_text() for module in (spans, message_parts)]
    words = {word for text in texts for word in text.split('"') if word.startswith("gen_ai.")}
    made = {f"gen_ai.request.{name}" for name in spans._SAMPLING}
    assert len(words) > 15 and (words - {"gen_ai.request.{name}"}) | made <= known


def test_the_swapper_loads_no_sdk_without_the_variables() -> None:
    """Nor does anything that imports the tail: it costs 13 MB."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    code = (
        "import sys; from burnish.server.rollout import process; from burnish.config.tracing import tracing;"
        "assert tracing() is None; print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
