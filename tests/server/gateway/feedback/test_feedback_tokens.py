"""A page votes with a token: on its own target, as a user, once, while the token and its key are valid."""

import base64
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateways import Running, error_of, serve

from burnish import keys, serving_table
from burnish.records import FeedbackSource, TargetKind
from burnish.server.gateway.feedback import vote_tokens as module
from burnish.testing import StubEngine

TARGET = "chatcmpl-1"


def wish(gateway: Running, key: str | None = "voter", **body: Any) -> httpx.Response:
    with gateway.client(key) as client:
        return client.post("/v1/feedback/tokens", json={"target": TARGET, **body})


def token_of(gateway: Running, **body: Any) -> str:
    response = wish(gateway, **body)
    assert response.status_code == 200, response.text
    return str(response.json()["token"])


def vote(gateway: Running, token: str, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    with gateway.client(token) as client:
        return client.post("/v1/feedback", json={"target": TARGET, "rating": "up", **body}, headers=headers)


def test_a_vote_and_another_one_in_its_place(gateway: Running) -> None:
    token = token_of(gateway)
    assert token.startswith("bft-")
    first, second = vote(gateway, token), vote(gateway, token, rating="down", comment="too long")
    assert (first.status_code, second.status_code) == (202, 202)
    up, down = gateway.feedback
    assert up.feedback_id == down.feedback_id == first.json()["id"]
    assert (down.source, down.tenant, down.rating, down.comment) == (FeedbackSource.USER, "default", -1.0, "too long")
    vote(gateway, token_of(gateway))
    assert len({row.feedback_id for row in gateway.feedback}) == 2


@pytest.mark.parametrize("about", list(TargetKind))
def test_a_token_is_for_its_target_only(gateway: Running, about: TargetKind) -> None:
    token = token_of(gateway, about=about)
    for body in ({"target": "chatcmpl-2", "about": about}, {"about": "turn" if about != "turn" else "session"}):
        error = error_of(vote(gateway, token, **body), 403)
        assert (error["code"], error["param"]) == ("wrong_target", "target")
    assert vote(gateway, token, about=about).status_code == 202
    assert [row.about for row in gateway.feedback] == [about]


def test_a_token_is_for_that_one_call_only(gateway: Running) -> None:
    token = token_of(gateway)
    with gateway.client(token) as client:
        error_of(client.post("/v1/feedback/batch", json={"feedback": [{"target": TARGET, "rating": 1}]}), 401)
        error_of(client.post("/v1/feedback/tokens", json={"target": TARGET}), 401)
        error_of(client.get("/v1/models"), 401)
        error_of(client.post("/v1/chat/completions", json={"model": "agent", "messages": []}), 401)
    assert error_of(vote(gateway, token, id="mine"), 400)["param"] == "id"
    assert error_of(vote(gateway, token, source="verifier"), 403)["param"] == "source"
    assert gateway.feedback == []


def test_an_expired_token(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    token = token_of(gateway, ttl_seconds=1)
    now = module.time.time()
    monkeypatch.setattr(module.time, "time", lambda: now + 2)
    assert error_of(vote(gateway, token), 401)["code"] == "expired_token"


def altered(token: str) -> list[str]:
    payload, _, signature = token.removeprefix("bft-").partition(".")
    grant = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    grant[2] = "chatcmpl-2"
    other = base64.urlsafe_b64encode(json.dumps(grant).encode()).rstrip(b"=").decode()
    return [
        f"bft-{other}.{signature}",
        f"bft-{payload}.{signature[:-4]}AAAA",
        f"bft-{payload}",
        f"bft-{payload}.",
        "bft-",
        "bft-.",
        "bft-é.ü",
        f"bft-{payload}.{signature}.x",
        token.upper().replace("BFT-", "bft-"),
    ]


def test_altered_tokens(gateway: Running) -> None:
    for wrong in altered(token_of(gateway)):
        with httpx.Client(base_url=gateway.url) as client:
            header = f"Bearer {wrong}".encode("latin-1")
            response = client.post(
                "/v1/feedback", json={"target": "chatcmpl-2", "rating": 1}, headers=[(b"authorization", header)]
            )
        assert error_of(response, 401)["code"] == "invalid_token", wrong
    assert gateway.feedback == []


def test_a_token_ends_with_its_key(gateway: Running) -> None:
    token = token_of(gateway)
    digest = keys.digest(gateway.secrets["voter"])

    def without(table: serving_table.Routes) -> serving_table.Routes:
        return replace(table, keys={known: key for known, key in table.keys.items() if known != digest})

    serving_table.update(gateway.settings.run_dir / "routes.json", without)
    threading.Event().wait(0.05)  # as long as a gateway trusts its copy of the table
    assert error_of(vote(gateway, token), 401)["code"] == "revoked_token"


@pytest.mark.parametrize(
    ("key", "status"), [("talker", 403), ("viewer", 403), ("operator", 403), (None, 401), ("admin", 200)]
)
def test_who_may_make_tokens(shared: Running, key: str | None, status: int) -> None:
    assert wish(shared, key).status_code == status


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"target": ""}, "target"),
        ({"target": None}, "target"),
        ({"target": "x" * 513}, "target"),
        ({"about": "reply"}, "about"),
        ({"about": None}, "about"),
        ({"ttl_seconds": 0}, "ttl_seconds"),
        ({"ttl_seconds": 30 * 86400 + 1}, "ttl_seconds"),
        ({"ttl_seconds": 2**70}, "ttl_seconds"),
        ({"ttl_seconds": "60"}, "ttl_seconds"),
        ({"ttl_seconds": 1.5}, "ttl_seconds"),
        ({"ttl": 60}, None),
    ],
)
def test_wrong_wishes(shared: Running, body: dict[str, Any], param: str | None) -> None:
    assert error_of(wish(shared, **body), 400)["param"] == param


def test_a_token_of_one_gateway_counts_at_another_and_after_a_restart(
    tmp_path: Path, engine: StubEngine, gateway: Running
) -> None:
    """Both read the secret beside the journal. A gateway elsewhere has another one."""
    token = token_of(gateway)
    table = (gateway.settings.run_dir / "routes.json").read_text(encoding="utf-8")
    for folder, status in ((tmp_path, 202), (tmp_path / "elsewhere", 401)):
        with serve(folder, engine) as second:
            (second.settings.run_dir / "routes.json").write_text(table, encoding="utf-8")
            threading.Event().wait(0.05)
            assert vote(second, token).status_code == status
    secret = gateway.settings.state_dir / "feedback.key"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.read_text().strip() not in token


def test_a_page_of_a_listed_origin_votes(tmp_path: Path, engine: StubEngine) -> None:
    page = "https://app.example"
    with serve(tmp_path, engine, allowed_origins=(page,)) as gateway:
        token = token_of(gateway)
        asked = {
            "origin": page,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        }
        with gateway.client() as client:
            preflight = client.options("/v1/feedback", headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == page
        allowed = preflight.headers["access-control-allow-headers"]
        assert {"authorization", "content-type"} <= set(allowed.split(", "))
        answer = vote(gateway, token, {"origin": page})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (202, page)
        refused = vote(gateway, "bft-x.y", {"origin": page})  # the page can read errors as well
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, page)
        assert error_of(vote(gateway, token, {"origin": "https://evil.example"}), 403)["code"] == "foreign_origin"


def test_processes_that_start_together_make_one_secret(tmp_path: Path) -> None:
    start, found = threading.Barrier(8), []

    def look() -> None:
        start.wait()
        found.append(keys.ensure_secret(tmp_path / "new" / "feedback.key"))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["feedback.key"]
