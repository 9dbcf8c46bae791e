"""Bad input to the admin routes, and versions without files: a 4xx with the reason, never a 500."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateways import ENGINE_KEY, Running, error_of, serve

from burnish.adapters.registry import lifecycle
from burnish.adapters.serving.prepare import prepare
from burnish.config import Settings
from burnish.records import VersionState
from burnish.server.gateway.admin import admin_app
from burnish.testing import StubEngine

ON_AGENT = "/admin/agents/agent"
HUGE = 2**64


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("admin")
    own = Settings(state_dir=folder)
    journal = prepare(own)
    with journal.write() as session:
        lifecycle.announce(session, "agent", 3, parent=0, step_id=None, digest="d")
        lifecycle.version(session, "agent", 3).state = VersionState.RETIRED
    stub = StubEngine(api_key=ENGINE_KEY)
    with stub, serve(folder, stub, fallback=admin_app(own, journal)) as running:
        yield running
    journal.close()


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (f"{ON_AGENT}/promote", {"version": HUGE}, "version"),
        (f"{ON_AGENT}/promote", {"version": -1}, "version"),
        (f"{ON_AGENT}/promote", {"version": 0, "expected": HUGE}, "expected"),
        (f"{ON_AGENT}/promote", {"version": 3, "reason": "a\0b"}, "reason"),
        (f"{ON_AGENT}/promote", {"version": 3, "why": "x"}, "why"),
        (f"{ON_AGENT}/rollback", {"to": HUGE}, "to"),
        ("/admin/agents/a%00b/rollback", {}, "agent"),
    ],
)
def test_what_no_database_can_hold_is_refused(admin: Running, path: str, body: Any, param: str) -> None:
    with admin.client("admin") as client:
        assert error_of(client.post(path, json=body), 400)["param"] == param


def test_version_numbers_that_cannot_be(admin: Running) -> None:
    with admin.client("admin") as client:
        assert error_of(client.get(f"{ON_AGENT}/versions/{HUGE}"), 400)["param"] == "version"
        assert error_of(client.get(f"{ON_AGENT}/versions/4"), 404)["code"] == "version_not_found"


def test_a_version_whose_files_are_gone(admin: Running) -> None:
    with admin.client("admin") as client:
        seen = client.get(f"{ON_AGENT}/versions/3").json()
        assert (seen["state"], seen["manifest"]) == ("retired", None)
        assert "manifest.json is missing" in seen["fault"]
        refused = error_of(client.post(f"{ON_AGENT}/promote", json={"version": 3}), 409)
    assert "cannot be served" in refused["message"]


def test_another_method_is_told_which_there_are(admin: Running) -> None:
    with admin.client("admin") as client:
        answer = client.delete("/admin/agents")
    error_of(answer, 405)
    assert answer.headers["allow"] == "GET"
