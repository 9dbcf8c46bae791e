"""The client's `traceparent` stands in the record of each reply, whichever way the reply is made."""

from pathlib import Path

import pytest
from gateways import HELLO, Running, serve

from burnish.config import Journal
from burnish.server.gateway.call import NO_BODY_LABELS
from burnish.server.gateway.labels import NO_LABELS, labels_of
from burnish.testing import StubEngine

SENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
MESSAGES = {"model": "agent", "max_tokens": 20, "messages": HELLO}


def test_it_is_kept_with_a_whole_reply_a_stream_and_each_choice(gateway: Running) -> None:
    for body in ({}, {"stream": True}, {"n": 2}):
        assert gateway.chat(headers={"traceparent": SENT}, **body).status_code == 200
    assert [row.traceparent for row in gateway.interactions] == [SENT] * 4


def test_it_is_kept_in_another_dialect(gateway: Running) -> None:
    with gateway.client() as client:
        assert client.post("/v1/messages", json=MESSAGES, headers={"traceparent": SENT}).status_code == 200
        response = client.post("/v1/responses", json={"model": "agent", "input": "hello"})
        assert response.status_code == 200
    assert [row.traceparent for row in gateway.interactions] == [SENT, None]


@pytest.mark.parametrize("text", ["nonsense", SENT.upper(), f"{SENT}-more", f"00-{'0' * 32}-00f067aa0ba902b7-01"])
def test_a_malformed_one_is_ignored(gateway: Running, text: str) -> None:
    assert gateway.chat(headers={"traceparent": text}).status_code == 200
    (row,) = gateway.interactions
    assert row.traceparent is None


def test_a_redacted_turn_keeps_it(tmp_path: Path, engine: StubEngine) -> None:
    with serve(tmp_path, engine, journal=Journal(redact=("agent",))) as running:
        said = [{"role": "user", "content": "I am ann@example.org"}]
        assert running.chat(headers={"traceparent": SENT}, messages=said).status_code == 200
        (row,) = running.interactions
    assert (row.traceparent, row.quarantine) == (SENT, "redacted")


def test_without_it_nothing_is_looked_for() -> None:
    assert labels_of({b"host": "x"}, NO_BODY_LABELS) is NO_LABELS
    assert labels_of({b"traceparent": "?"}, NO_BODY_LABELS) == NO_LABELS
