"""Feedback in the journal: its owners can read and withdraw it, on each database."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateways import ENGINE_KEY, Running, error_of, serve
from sqlalchemy import select

from burnish import serving_table
from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.tables import AuditRow, FeedbackRow
from burnish.keys import Scope, mint
from burnish.server.gateway.admin import admin_app
from burnish.server.ingest import ingester
from burnish.server.ingest.ingester import Ingester
from burnish.testing import StubEngine
from tests.journals import any_journal, journal_url, migrated_file, sqlite_url

__all__ = ["any_journal", "journal_url", "migrated_file", "sqlite_url"]
PATH = "/v1/feedback"


@dataclass
class Whole:
    """A gateway with its journal, and an ingester that reads on demand."""

    gateway: Running
    journal: Journal

    def ask(self, method: str, path: str, key: str | None = "voter", **more: Any) -> httpx.Response:
        with self.gateway.client(key) as client:
            return client.request(method, path, **more)

    def say(self, target: str, key: str = "voter", **body: Any) -> str:
        response = self.ask("POST", PATH, key, json={"target": target, "rating": "up", **body})
        assert response.status_code == 202, response.text
        return str(response.json()["id"])

    def ingest(self, feedback_ttl: float = 3600.0) -> None:
        Ingester(
            self.journal, self.gateway.settings.segments_dir, session_timeout=3600.0, feedback_ttl=feedback_ttl
        ).run_once()

    def shown(self, name: str, key: str = "voter") -> Any:
        response = self.ask("GET", f"{PATH}/{name}", key)
        assert response.status_code == 200, response.text
        return response.json()


@pytest.fixture
def whole(tmp_path: Path, any_journal: Journal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Whole]:
    monkeypatch.setattr(ingester, "SETTLE_SECONDS", -1.0)  # nobody writes while these tests read
    folder = tmp_path / "state"
    stub = StubEngine(api_key=ENGINE_KEY, loaded={"agent@v1": "/a/1", "agent@v2": "/a/2"})
    with stub, serve(folder, stub, fallback=admin_app(Settings(state_dir=folder), any_journal)) as gateway:
        yield Whole(gateway, any_journal)


def test_from_pending_to_attached_to_deleted(whole: Whole) -> None:
    reply = whole.gateway.chat("talker").json()["id"]
    name = whole.say(reply, comment="good", outcome=True, label="sold")
    assert error_of(whole.ask("GET", f"{PATH}/{name}"), 404)["code"] == "feedback_not_found"
    early = whole.say("chatcmpl-of-tomorrow", about="turn", score=0.5, demonstration="Hi.", correction="Ho.")
    whole.ingest()
    seen = whole.shown(name)
    assert seen.pop("created_at") > 1e9
    assert seen == {
        **dict.fromkeys(("score", "correction", "demonstration", "expired_at")),
        "id": name,
        "target": reply,
        "about": "response",
        "status": "attached",
        "source": "user",
        "turn": reply,
        "rating": 1.0,
        "outcome": 1.0,
        "label": "sold",
        "comment": "good",
    }
    seen = whole.shown(early)
    assert (seen["status"], seen["turn"], seen["about"], seen["score"]) == ("pending", None, "turn", 0.5)
    assert (seen["demonstration"], seen["correction"]) == ("Hi.", "Ho.")
    deletion = whole.ask("DELETE", f"{PATH}/{name}")
    assert (deletion.status_code, deletion.json()) == (
        202,
        {"id": name, "target": reply, "about": "response", "status": "deleted"},
    )
    whole.ingest()
    assert (whole.shown(name)["status"], whole.shown(name)["comment"]) == ("deleted", "good")
    n_records = len(whole.gateway.feedback)
    again = whole.ask("DELETE", f"{PATH}/{name}")
    assert (again.status_code, again.json()) == (202, deletion.json())
    assert len(whole.gateway.feedback) == n_records


def test_what_expired_says_so(whole: Whole) -> None:
    name = whole.say("nowhere")
    whole.ingest(feedback_ttl=1e-9)
    seen = whole.shown(name)
    assert seen["status"] == "expired" and seen["expired_at"] >= seen["created_at"]


def test_what_is_on_its_way_can_be_taken_back(whole: Whole) -> None:
    """Neither is in the journal yet, and with two gateways' segments either may be read first."""
    name = whole.say("chatcmpl-1")
    assert whole.ask("DELETE", f"{PATH}/{name}").status_code == 202
    whole.ingest()
    assert (whole.shown(name)["status"], whole.shown(name)["target"]) == ("deleted", "chatcmpl-1")


def test_the_audit_log_names_the_key_that_deleted_feedback(whole: Whole) -> None:
    reply = whole.gateway.chat("talker").json()["id"]
    names = [whole.say(reply, id="words of a user"), whole.say("nothing with words"), whole.say(reply, id="kept")]
    whole.ingest()
    for name in (names[0], names[0], names[1]):
        assert whole.ask("DELETE", f"{PATH}/{name}", "operator").status_code == 202
        whole.ingest()
    giver, deleter = (whole.gateway.secrets[role][:17] for role in ("voter", "operator"))
    with whole.journal.read() as session:
        rows = session.scalars(select(AuditRow).where(AuditRow.action == "delete-feedback")).all()
        assert [(row.actor, row.object, row.before, row.agent, row.tenant) for row in rows] == [
            (deleter, reply, f"of {giver}", "agent", None),
            (deleter, "feedback without a reply", f"of {giver}", None, "default"),
        ]
        assert "words" not in str([row.model_dump() for row in rows])
        deleted = {row.feedback_id: row.deleted_by for row in session.scalars(select(FeedbackRow))}
        assert deleted == {names[0]: deleter, names[1]: deleter, names[2]: None}


def test_an_id_of_the_clients_own_finds_it_again_and_is_stored_nowhere(whole: Whole) -> None:
    key_id = whole.say("chatcmpl-1", id="Ann Smith").partition(":")[0]
    assert whole.ask("DELETE", f"{PATH}/{key_id}:words of Ann").status_code == 202
    whole.ingest()
    assert whole.shown(f"{key_id}:Ann Smith")["target"] == "chatcmpl-1"
    assert whole.ask("DELETE", f"{PATH}/{key_id}:Ann Smith").status_code == 202
    whole.ingest()
    assert whole.shown(f"{key_id}:Ann Smith")["status"] == "deleted"
    with whole.journal.read() as session:
        names = list(session.scalars(select(FeedbackRow.feedback_id)))
    assert len(names) == 2 and not any("Ann" in name for name in names)


def test_whose_word_it_is(whole: Whole) -> None:
    name = whole.say("chatcmpl-1", id="a/b c?é#%\0")
    whole.ingest()
    path = f"{PATH}/" + "".join(f"%{byte:02x}" for byte in name.encode())
    for key, seen, deleted in (
        ("talker", 403, 403),
        ("neighbour", 404, 404),
        ("foreigner", 404, 404),
        ("viewer", 200, 403),
        ("voter", 200, 202),
        ("operator", 200, 202),
        ("admin", 200, 202),
        (None, 401, 401),
    ):
        assert whole.ask("GET", path, key).status_code == seen, key
        assert whole.ask("DELETE", path, key).status_code == deleted, key
    listed = {
        key: whole.ask("GET", PATH, key, params={"target": "chatcmpl-1"})
        for key in ("neighbour", "foreigner", "viewer")
    }
    assert [len(response.json()["feedback"]) for response in listed.values()] == [0, 0, 1]
    whole.ingest()
    assert whole.ask("GET", path).json()["status"] == "deleted"


@pytest.mark.parametrize(
    "name", ["fb-unknown", "sk-burnish-xxxxxx:mine", "", "a%00b", "%f0%9f%98%80", "x" * 5000, "..%2f..", "%ff"]
)
def test_unknown_names(whole: Whole, name: str) -> None:
    for method in ("GET", "DELETE"):
        error_of(whole.ask(method, f"{PATH}/{name}", "admin"), 404)
    assert whole.gateway.feedback == []


def test_the_list_is_newest_first_and_by_kind(whole: Whole) -> None:
    names = [whole.say("r", about=about) for about in ("response", "turn", "response", "session")]
    whole.say("other")
    whole.say("r", "neighbour")
    whole.ingest()

    def listed(key: str = "voter", **query: Any) -> list[str]:
        response = whole.ask("GET", PATH, key, params={"target": "r", **query})
        assert response.status_code == 200, response.text
        return [each["id"] for each in response.json()["feedback"]]

    assert listed() == names[::-1]
    assert listed(about="response") == [names[2], names[0]]
    assert listed(limit=1) == [names[3]]
    assert len(listed("admin")) == 5
    assert listed(target="r\0") == []


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({}, "target"),
        ({"target": ""}, "target"),
        ({"target": "x" * 513}, "target"),
        ({"target": "r", "about": "reply"}, "about"),
        ({"target": "r", "limit": 0}, "limit"),
        ({"target": "r", "limit": 2**70}, "limit"),
    ],
)
def test_wrong_queries(whole: Whole, query: dict[str, Any], param: str) -> None:
    assert error_of(whole.ask("GET", PATH, params=query), 400)["param"] == param


def test_a_token_can_neither_see_nor_take_back(whole: Whole) -> None:
    token = whole.ask("POST", f"{PATH}/tokens", json={"target": "t"}).json()["token"]
    for method, path in (("GET", f"{PATH}?target=t"), ("GET", f"{PATH}/x"), ("DELETE", f"{PATH}/x")):
        error_of(whole.ask(method, path, token), 401)


def test_other_methods_are_told_which_there_are(whole: Whole) -> None:
    answer = whole.ask("PUT", PATH)
    error_of(answer, 405)
    assert answer.headers["allow"] == "POST, GET"


def test_a_journal_that_does_not_answer_is_a_503_and_votes_are_taken_all_the_same(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.exc import OperationalError

    def read() -> Any:
        raise OperationalError("SELECT", {}, Exception("gone"))

    monkeypatch.setattr(whole.journal, "read", read)
    for method, path in (("GET", f"{PATH}?target=t"), ("GET", f"{PATH}/x"), ("DELETE", f"{PATH}/x")):
        answer = whole.ask(method, path)
        assert "retry-after" in answer.headers
        error_of(answer, 503)
    whole.say("t")


def test_a_limited_key_sees_and_deletes_only_what_is_about_its_agents(whole: Whole) -> None:
    replies = {agent: whole.gateway.chat("talker", model=agent).json()["id"] for agent in ("agent", "second")}
    names = {agent: whole.say(reply) for agent, reply in replies.items()}
    whole.ingest()
    secret, key = mint([Scope.OPERATOR], agents=["second"])
    serving_table.update(
        whole.gateway.settings.run_dir / "routes.json",
        lambda table: replace(table, keys={**table.keys, key.digest: key}),
    )
    whole.gateway.secrets["limited operator"] = secret
    assert whole.shown(names["second"], "limited operator")["turn"] == replies["second"]
    for method in ("GET", "DELETE"):
        error_of(whole.ask(method, f"{PATH}/{names['agent']}", "limited operator"), 404)
    found = whole.ask("GET", f"{PATH}?target={replies['agent']}", "limited operator").json()
    assert found == {"feedback": []}
