"""Redaction at the gateway: the client gets its reply as it is, the segments hold it redacted, and it never trains."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnish import config
from burnish.adapters.serving.prepare import prepare
from burnish.journal.tables import InteractionRow
from burnish.server.ingest.ingester import SETTLE_SECONDS, Ingester
from burnish.testing import StubEngine
from tests.server.gateway.gateways import ENGINE_KEY, Running, serve, text_of

MAIL, REPLY = "ann@example.org", "Her number is +49 30 1234567."


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Running]:
    loaded = {"agent@v1": "/a/1", "agent@v2": "/a/2"}
    with (
        StubEngine(api_key=ENGINE_KEY, loaded=loaded, replies=(REPLY,)) as stub,
        serve(tmp_path, stub, journal=config.Journal(redact=("agent",))) as running,
    ):
        yield running


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("is_stream", [False, True])
def test_the_client_sees_what_the_segments_do_not_hold(gateway: Running, is_stream: bool) -> None:
    if is_stream:
        assert text_of(gateway.stream("talker", messages=said(f"mail {MAIL}"))) == REPLY
    else:
        reply = gateway.chat("talker", messages=said(f"mail {MAIL}")).json()
        assert reply["choices"][0]["message"]["content"] == REPLY
    raw = b"".join(path.read_bytes() for path in gateway.settings.segments_dir.glob("*.seg"))
    assert MAIL.encode() not in raw and b"1234567" not in raw
    (turn,) = gateway.interactions
    assert turn.messages == said("mail [email]") and turn.reply["content"] == "Her number is [phone]."
    assert turn.quarantine == "redacted" and not turn.token_ids and not turn.prompt_ids


def test_other_agents_and_turns_without_a_finding_are_recorded_whole(gateway: Running) -> None:
    gateway.engine.replies = ("fine",)
    gateway.chat("talker", messages=said("hello"))
    gateway.chat("talker", model="second", messages=said(f"mail {MAIL}"))
    plain, other = gateway.interactions
    assert plain.quarantine is None and list(plain.token_ids[:4]) == list(b"fine")
    assert other.messages == said(f"mail {MAIL}") and other.quarantine is None


def test_feedback_is_redacted(gateway: Running) -> None:
    vote = {"target": "x", "rating": "down", "comment": f"ask {MAIL}", "demonstration": f"Write to {MAIL}."}
    vote |= {"correction": f"Not {MAIL}.", "label": f"asked {MAIL}", "outcome": -1, "id": f"of {MAIL}"}
    with gateway.client("voter") as client:
        assert client.post("/v1/feedback", json=vote).status_code == 202
    (stored,) = gateway.feedback
    assert (stored.comment, stored.demonstration) == ("ask [email]", None)
    assert (stored.correction, stored.label) == (None, "asked [email]")
    assert MAIL.encode() not in b"".join(path.read_bytes() for path in gateway.settings.segments_dir.glob("*.seg"))


def test_a_redacted_turn_never_trains(gateway: Running) -> None:
    gateway.chat("talker", messages=said(f"mail {MAIL}"))
    journal = prepare(gateway.settings)
    time.sleep(2 * SETTLE_SECONDS)
    assert Ingester(journal, gateway.settings.segments_dir, session_timeout=3600.0).run_once() == 1
    with journal.read() as session:
        row = session.query(InteractionRow).one()
        assert (row.skip_reason, row.quarantine) == ("redacted", "redacted")
    journal.close()
