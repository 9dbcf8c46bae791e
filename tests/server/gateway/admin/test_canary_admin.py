"""Canaries over HTTP: who may read and end them, their reports, and refusals."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from gateways import ENGINE_KEY, Running, error_of, serve
from registered import registered

from burnish.adapters.evidence.comparison import Comparison, Rules, Turn
from burnish.adapters.registry import canaries, lifecycle
from burnish.adapters.serving.prepare import prepare
from burnish.config import Settings
from burnish.records import Observation
from burnish.server.gateway.admin import admin_app
from burnish.testing import StubEngine

CANARY = "/admin/agents/agent/canary"


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Running]:
    """v1 is live, v2 is on canary and has lost ten pairs."""
    own = Settings(state_dir=tmp_path)
    journal = prepare(own)
    seen = Comparison(Rules())
    for _ in range(10):
        for is_version in (False, True):
            seen.add(is_version, "u", Turn(not is_version, None, None, 10.0, 1.0))
    with journal.write() as session:
        for number in (1, 2):
            lifecycle.announce(session, "agent", number, parent=number - 1, step_id=None, digest="d")
        lifecycle.promote(session, "agent", 1, expected=0, actor="gate")
        evidence = {"comparison": seen.as_dict(), "cursor": {"since": 0.0, "seen": []}}
        canaries.begin(session, "agent", 2, 1, Observation.CANARY, share=0.1, actor="gate", evidence=evidence)
    stub = StubEngine(api_key=ENGINE_KEY)
    with stub, serve(tmp_path, stub, fallback=admin_app(own, journal)) as running:
        yield running
    journal.close()


def test_a_viewer_sees_and_an_operator_ends(admin: Running) -> None:
    with admin.client("viewer") as client:
        told = client.get(CANARY).json()
        error_of(client.post(f"{CANARY}/stop", json={}), 403)
    found = told["observations"][0]
    assert (told["live"], found["version"], found["state"], found["pairs"]["reward"]["lost"]) == (1, 2, "running", 10)
    with admin.client("operator") as client:
        assert client.post(f"{CANARY}/stop", json={"reason": "rude"}).json() == {"status": "agent@v2 was refused: rude"}
        assert error_of(client.post(f"{CANARY}/stop", json={}), 409)["code"] == "no_canary"
        after = client.get(CANARY, params={"limit": 1}).json()["observations"][0]
        (entry,) = client.get("/admin/audit", params={"action": "refuse"}).json()["entries"]
    assert (after["state"], after["reason"]) == ("stopped", "rude")
    assert admin.secrets["operator"].startswith(entry["actor"])


def test_what_cannot_be_started(admin: Running) -> None:
    with admin.client("operator") as client:
        for version, status, said in (
            (1, 409, "is live already"),
            (2, 409, "is still on trial"),
            (9, 404, "no version agent@v9"),
        ):
            assert said in error_of(client.post(f"{CANARY}/start", json={"version": version}), status)["message"]
        assert error_of(client.post(f"{CANARY}/start", json={"version": 1, "share": 0.9}), 400)["param"] == "share"
        assert error_of(client.post(f"{CANARY}/stop", json={"kind": "nothing"}), 400)["param"] == "kind"


def test_another_tenants_agent_does_not_exist(admin: Running) -> None:
    with admin.client("foreigner") as client:
        assert error_of(client.get(CANARY), 404)["code"] == "agent_not_found"
        error_of(client.post(f"{CANARY}/stop", json={}), 404)


def test_the_audit_log_names_the_key(tmp_path: Path) -> None:
    with registered(tmp_path) as made:
        key_id = made.running.secrets["operator"][:17]
        n_before = len(made.audit())
        assert made.post("/agents/agent/canary/start", {"version": 1}).status_code == 200
        assert made.post("/agents/agent/canary/stop", {"reason": "rude"}).status_code == 200
        rows = made.audit()[n_before:]
        assert {action for _, action, _ in rows} >= {"canary begins", "canary stopped"}
        assert {actor for actor, _, _ in rows} == {key_id}
