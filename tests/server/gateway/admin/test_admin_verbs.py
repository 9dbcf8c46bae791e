"""The admin API's verbs on a real journal and store: their answers, scopes and tenants."""

import gzip
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from gateways import error_of
from registered import Registered, add_version, registered
from typer.main import get_command

from burnish import serving_table
from burnish.adapters.registry import agents
from burnish.cli import app
from burnish.journal.tables import InteractionRow
from burnish.keys import Scope, mint
from tests.factories import interaction, user
from tests.turns import add_feedback, add_turn

ON_AGENT = "/agents/agent"
READS = [
    "/agents",
    ON_AGENT,
    f"{ON_AGENT}/versions",
    f"{ON_AGENT}/versions/2",
    f"{ON_AGENT}/versions/2/lineage",
    f"{ON_AGENT}/learner",
    f"{ON_AGENT}/canary",
    "/turns/t",
    "/audit",
]
EXPORTS = [f"{ON_AGENT}/export", f"{ON_AGENT}/versions/2/export"]
CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("/agents", {"name": "new"}),
    (f"{ON_AGENT}/set", {"settings": {}}),
    (f"{ON_AGENT}/promote", {"version": 2}),
    (f"{ON_AGENT}/rollback", {}),
    (f"{ON_AGENT}/end-hold", {}),
    (f"{ON_AGENT}/versions/3/pin", {}),
    (f"{ON_AGENT}/versions/3/unpin", {}),
    (f"{ON_AGENT}/versions/gc", {"dry_run": True}),
    (f"{ON_AGENT}/learner/pause", {}),
    (f"{ON_AGENT}/learner/resume", {}),
    (f"{ON_AGENT}/learner/step", {}),
    (f"{ON_AGENT}/canary/stop", {}),
]


def test_routes_use_the_words_of_the_commands(still: Registered) -> None:
    with still.running.client("viewer") as client:
        paths = [path for path in client.get("/openapi.json").json()["paths"] if path.startswith("/admin/")]
    words = {word for path in paths for word in path.split("/")[2:] if not word.startswith("{")}
    assert len(paths) > 15 and words <= set(command_words(get_command(app)))


def command_words(command: Any) -> Iterator[str]:
    for name, below in getattr(command, "commands", {}).items():
        yield name
        yield from command_words(below)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Registered]:
    with registered(tmp_path) as made:
        add_turn(made.journal, interaction([user("hi")], "hello", interaction_id="t"), is_ready=True)
        add_feedback(made.journal, "t", 1.0)
        yield made


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registered]:
    """One world for the tests that change nothing."""
    with registered(tmp_path_factory.mktemp("still")) as made:
        add_turn(made.journal, interaction([user("hi")], "hello", interaction_id="t"), is_ready=True)
        yield made


def limited_key(world: Registered, *names: str) -> str:
    """An operator's key for these agents only."""
    secret, key = mint([Scope.OPERATOR], agents=names)
    serving_table.update(
        world.settings.run_dir / "routes.json",
        lambda table: serving_table.Routes(**{**_fields(table), "keys": {**table.keys, key.digest: key}}),
    )
    return secret


def _fields(table: serving_table.Routes) -> dict[str, Any]:
    return {name: getattr(table, name) for name in table.__dataclass_fields__ if name != "memo"}


@pytest.mark.parametrize("path", READS)
def test_a_viewer_sees_and_a_talker_does_not(still: Registered, path: str) -> None:
    assert still.get(path).status_code == 200
    for key in ("talker", "voter"):
        error_of(still.get(path, key), 403)


@pytest.mark.parametrize("path", EXPORTS)
def test_only_an_operator_takes_weights_and_rows_away(still: Registered, path: str) -> None:
    for key in ("viewer", "talker", "voter"):
        error_of(still.get(path, key), 403)
    error_of(still.get(path, "foreigner"), 404)
    assert still.get(path, "operator").status_code == 200


def test_every_admin_route_is_closed_to_a_key_that_is_limited_to_another_agent(world: Registered) -> None:
    """From the document itself, so that a new route cannot be forgotten."""
    key = limited_key(world, "second")
    world.running.secrets["limited operator"] = key
    with world.running.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    on_agent = [(path, method) for path, verbs in paths.items() if "/agents/{agent}" in path for method in verbs]
    assert len(on_agent) > 15
    bodies = {path: body for path, body in CHANGES} | {f"{ON_AGENT}/canary/start": {"version": 1}}
    before = world.audit()
    for path, method in [*on_agent, ("/admin/turns/t", "get")]:
        asked = path.removeprefix("/admin").replace("{agent}", "agent").replace("{version}", "3")
        if method == "get":
            error_of(world.get(asked, "limited operator"), 404)
        else:
            error_of(world.post(asked, bodies.get(asked), "limited operator"), 404)
    assert error_of(world.post("/agents", {"name": "third"}, "limited operator"), 403)["code"] == "model_not_allowed"
    assert world.audit() == before
    assert world.get("/audit?agent=second", "limited operator").json()["entries"] == []


def test_only_an_operator_changes(world: Registered) -> None:
    for path, body in CHANGES:
        for key in ("viewer", "talker", "voter"):
            error_of(world.post(path, body, key), 403)
    for path, body in CHANGES[:-1]:
        assert world.post(path, body).status_code == 200, path


@pytest.mark.parametrize("path", [path for path in READS if path not in ("/agents", "/audit")])
def test_another_tenants_things_do_not_exist(still: Registered, path: str) -> None:
    error_of(still.get(path, "foreigner"), 404)


@pytest.mark.parametrize(("path", "body"), CHANGES[1:])
def test_another_tenant_changes_nothing(still: Registered, path: str, body: dict[str, Any]) -> None:
    before = still.audit()
    error_of(still.post(path, body, "foreigner"), 404)
    assert (still.live(), still.audit()) == (2, before)


def test_each_tenant_sees_its_own(world: Registered) -> None:
    def names(key: str) -> list[str]:
        return [agent["name"] for agent in world.get("/agents", key).json()["agents"]]

    assert (names("viewer"), names("foreigner")) == (["agent", "second"], ["theirs"])
    world.post("/agents", {"name": "other~more"}, "foreigner")
    assert names("foreigner") == ["other~more", "theirs"]
    mine, other = (world.get("/audit", key).json()["entries"] for key in ("viewer", "foreigner"))
    assert {entry["agent"] for entry in mine} == {"agent"} and {entry["agent"] for entry in other} == {"other~more"}
    error_of(world.get("/audit?agent=agent", "foreigner"), 404)
    add_turn(world.journal, interaction([user("x")], interaction_id="foreign", tenant="other"))
    add_feedback(world.journal, "foreign", 1.0, tenant="other")
    rows = world.get(f"{ON_AGENT}/export?format=kto", "operator").text.splitlines()
    assert [json.loads(row)["id"] for row in rows] == ["t"]
    error_of(world.get("/turns/foreign"), 404)


def test_a_tenant_learns_nothing_of_the_names_of_others(world: Registered) -> None:
    def said(name: str, key: str) -> str:
        return str(error_of(world.post("/agents", {"name": name}, key), 400)["message"]).replace(name, "NAME")

    assert said("second", "foreigner") == said("secret", "foreigner")
    assert "try 'other~NAME'" in said("second", "foreigner")
    assert said("other~theirs", "operator") == said("other~nothing", "operator")
    assert said("default~x", "foreigner") == said("third~x", "foreigner")


def test_a_key_for_some_agents_sees_no_others(world: Registered) -> None:
    key = limited_key(world, "second")
    assert [agent["name"] for agent in world.get("/agents", key).json()["agents"]] == ["second"]
    error_of(world.get(f"{ON_AGENT}/versions", key), 404)
    error_of(world.get("/turns/t", key), 404)
    assert world.get("/audit", key).json() == {"entries": [], "next": None}
    with world.journal.write() as session:  # a personal agent goes with its parent
        agents.ensure_agent(session, "second.u-1")
        session.flush()
        agents.find(session, "second.u-1").parent = "second"
    assert world.get("/agents/second.u-1", key).status_code == 200


def test_an_agent_is_made_with_settings_of_its_own(world: Registered) -> None:
    body = {"name": "support", "settings": {"learner.min_rows": "8", "versions.keep_live": 2}, "reason": "new desk"}
    made = world.post("/agents", body).json()
    assert (made["tenant"], made["settings"], made["aliases"]) == (
        "default",
        {"learner.min_rows": 8, "versions.keep_live": 2},
        {"live": 0},
    )
    assert world.post("/agents", body).json()["created_at"] == made["created_at"]
    changed = world.post("/agents/support/set", {"settings": {"learner.rank": 4}}).json()
    assert changed["settings"] == {"learner.rank": 4}
    assert world.get("/agents/support").json()["interactions"] == 0
    for settings, said in (
        ({"learner.min_row": 8}, "did you mean"),
        ({"learner.min_rows": 0}, "learner.min_rows"),
        ({"engine.port": 1}, "cannot be set for one agent"),
        ({"learner.threads": 2}, "is the same for all agents"),
    ):
        assert said in error_of(world.post("/agents", {"name": "odd", "settings": settings}), 400)["message"]
    assert "is taken or reserved" in error_of(world.post("/agents", {"name": "base"}), 409)["message"]
    error_of(world.post("/agents", {"name": "a/b"}), 400)


def test_pins_keep_files_and_gc_removes_the_rest(world: Registered) -> None:
    add_version(world.journal, world.store, 5, "refused")
    pinned = world.post(f"{ON_AGENT}/versions/5/pin", {"reason": "to look at"})
    assert pinned.json() == {"status": "agent@v5 is pinned", "is_pinned": True}
    assert world.post(f"{ON_AGENT}/versions/5/pin").json()["status"] == "agent@v5 is pinned already"
    dry = world.post(f"{ON_AGENT}/versions/gc", {"dry_run": True}).json()
    assert (dry["dry_run"], dry["removed"].keys()) == (True, {"4"})
    assert world.store.versions("agent") == [1, 2, 3, 4, 5]
    done = world.post(f"{ON_AGENT}/versions/gc").json()
    assert done["removed"].keys() == {"4"} and world.store.versions("agent") == [1, 2, 3, 5]
    assert world.get(f"{ON_AGENT}/versions/4").json()["manifest"]["version"] == 4, "how it was made stays"
    world.post(f"{ON_AGENT}/versions/5/unpin")
    assert world.post(f"{ON_AGENT}/versions/gc").json()["removed"].keys() == {"5"}
    acts = [action for actor, action, _ in world.audit() if actor.startswith("sk-burnish-")]
    assert acts == ["pin", "remove", "unpin", "remove"]


def test_a_version_leaves_as_a_tar_of_a_peft_directory(world: Registered) -> None:
    answer = world.get(f"{ON_AGENT}/versions/2/export", "operator")
    assert answer.headers["content-type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        assert sorted(archive.getnames()) == [
            f"agent@v2/{name}" for name in ("adapter_config.json", "adapter_model.safetensors", "manifest.json")
        ]
    error_of(world.get(f"{ON_AGENT}/versions/9/export", "operator"), 404)
    (world.store.path("agent", 3) / "adapter_config.json").unlink()
    error_of(world.get(f"{ON_AGENT}/versions/3/export", "operator"), 409)


def archive(*members: tuple[str, bytes], link: bool = False) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            if link:
                entry.type, entry.linkname, entry.size = tarfile.SYMTYPE, "/etc/passwd", 0
            made.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"no tar", 400, "is no tar archive of an adapter's directory"),
        (b"", 400, "it is empty"),
        (gzip.compress(archive(("x/adapter_config.json", b"{}"))), 400, "it is compressed"),
        (archive(("x" * 300, b"")), 400, "File name too long"),
        (archive(("adapter_config.json", b""), link=True), 400, "is no plain file"),
        (archive(("a/adapter_config.json", b"{}"), ("b/adapter_config.json", b"{}")), 400, "twice"),
        (archive(("x/adapter_model.bin", b"\x80")), 409, "adapter_model.bin is a pickle"),
        (archive(("../../setup.py", b"import os")), 409, "setup.py is code"),
        (archive(("x/adapter_config.json", b"{}")), 409, "adapter_model.safetensors is missing"),
    ],
)
def test_an_import_that_cannot_be_is_refused_and_leaves_nothing(
    still: Registered, body: bytes, status: int, said: str
) -> None:
    before = sorted(file.name for file in still.settings.state_dir.iterdir())
    error = error_of(still.post(f"{ON_AGENT}/versions/import", content=body), status)
    assert said in error["message"] and str(still.settings.state_dir) not in error["message"]
    assert sorted(file.name for file in still.settings.state_dir.iterdir()) == before
    assert (still.live(), still.speaks()) == (2, "agent@v2")


def test_a_hold_ends_when_somebody_says_so(world: Registered) -> None:
    assert world.post(f"{ON_AGENT}/end-hold").json() == {"status": "agent was not held", "was_held": None}
    with world.journal.write() as session:
        agents.hold(session, "agent", "v2 was rolled back by itself", actor="watch")
    assert world.get(ON_AGENT).json()["held"] == "v2 was rolled back by itself"
    assert world.post(f"{ON_AGENT}/end-hold", {"reason": "seen"}).json()["was_held"] == "v2 was rolled back by itself"
    assert world.get(ON_AGENT).json()["held"] is None


def test_the_learner_is_paused_resumed_and_made_to_step(world: Registered) -> None:
    for verb, is_paused in (("pause", True), ("pause", True), ("resume", False)):
        assert world.post(f"{ON_AGENT}/learner/{verb}").json()["is_paused"] is is_paused
        assert world.get(f"{ON_AGENT}/learner").json()["is_paused"] is is_paused
    assert world.post(f"{ON_AGENT}/learner/step").json()["n_ready"] == 1
    with world.journal.write() as session:
        session.get_one(InteractionRow, "t").is_ready = False
    error_of(world.post(f"{ON_AGENT}/learner/step"), 409)


def test_a_turn_says_why_and_a_version_where_it_comes_from(world: Registered) -> None:
    told = world.get("/turns/t").json()
    assert (told["training_status"], told["reward"]["value"]) == ("ready for the learner", 1.0)
    error_of(world.get("/turns/nobody"), 404)
    told = world.get(f"{ON_AGENT}/versions/2/lineage").json()
    assert (told["ancestors"], told["aliases"], told["live"][0]["by"]) == (["agent@v1", "agent@v0"], ["live"], "gate")


def test_the_audit_log_tells_a_tenant_about_its_keys_and_users_and_nobody_else(world: Registered) -> None:
    add_turn(world.journal, interaction([user("x")], interaction_id="of ann", user="ann"))
    made = world.post("/keys", {"scopes": ["inference", "feedback"], "name": "ann's", "user": "ann"}, "admin").json()
    for body in ({"key_id": made["key_id"], "reason": "lost"}, {"key_id": made["key_id"]}, {"user": "ann"}):
        assert world.post("/keys/revoke", body, "admin").status_code == 200
    for verb in ("opt-out", "opt-in", "forget"):
        assert world.post(f"/privacy/{verb}", {"user": "ann"}, "admin").status_code == 200
    told = world.get("/audit?limit=6", "viewer").json()["entries"][::-1]
    (admin,) = {entry["actor"] for entry in told}
    assert admin.startswith("sk-burnish-") and {entry["tenant"] for entry in told} == {"default"}
    assert [entry["action"] for entry in told] == [
        *("create-key", "revoke-key", "revoke-user", "opt-out", "opt-in", "forget")
    ]
    assert [(entry["object"], entry["after"], entry["reason"]) for entry in told[:2]] == [
        (made["key_id"], "feedback, inference", None),
        (made["key_id"], None, "lost"),
    ]
    assert "ann" not in str(told) and made["secret"] not in str(told)
    for key in ("foreigner", limited_key(world, "agent")):
        seen = {entry["action"] for entry in world.get("/audit", key).json()["entries"]}
        assert seen.isdisjoint({entry["action"] for entry in told})


def test_the_tokens_of_one_reply_are_told_at_a_time(world: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty at once would take every worker thread, and promotions wait for those."""
    has_begun, may_go_on = Event(), Event()

    def told(*_: object) -> list[dict[str, object]]:
        has_begun.set()
        assert may_go_on.wait(30)
        return []

    monkeypatch.setattr("burnish.server.gateway.admin.records.turns.tokens_of", told)
    first = Thread(target=world.get, args=("/turns/t/tokens",))
    first.start()
    assert has_begun.wait(30)
    refused = world.get("/turns/t/tokens")
    assert (error_of(refused, 429)["code"], refused.headers["retry-after"]) == ("rate_limit_exceeded", "1")
    may_go_on.set()
    first.join()
    assert world.get("/turns/t/tokens").json() == {"turn": "t", "tokens": []}


def test_the_audit_log_is_filtered_and_paged(world: Registered) -> None:
    for verb in ("pause", "resume"):
        world.post(f"{ON_AGENT}/learner/{verb}", {"reason": "because"})
    first = world.get("/audit?limit=1").json()
    assert [entry["action"] for entry in first["entries"]] == ["resume"]
    second = world.get(f"/audit?limit=1&before={first['next']}").json()
    assert [entry["action"] for entry in second["entries"]] == ["pause"]
    assert len(world.get("/audit?actor=gate&action=promote").json()["entries"]) == 2


def test_rows_are_streamed_to_operators_as_jsonl(world: Registered) -> None:
    answer = world.get(f"{ON_AGENT}/export?format=sft", "operator")
    assert answer.headers["content-type"].startswith("application/jsonl")
    assert json.loads(answer.text)["completion"] == [{"role": "assistant", "content": "hello"}]
    # a viewer may read what is served and why, but not the conversations
    error_of(world.get(f"{ON_AGENT}/export"), 403)
    error_of(world.get(f"{ON_AGENT}/export?format=csv", "operator"), 400)
