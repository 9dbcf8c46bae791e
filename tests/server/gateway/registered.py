"""A gateway with the admin API, a real journal and real versions, for tests of the admin verbs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateways import ENGINE_KEY, Running, serve

from burnish import serving_table
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import lifecycle
from burnish.adapters.serving.prepare import prepare
from burnish.config import Engine, Settings
from burnish.journal import Journal
from burnish.journal.tables import AuditRow, KeyRow, LoadJob
from burnish.server.gateway.admin import admin_app
from burnish.testing import StubEngine
from tests.adapters.files.test_store import FACTS, fill


@dataclass
class Registered:
    """`agent` has versions 1 to 4.

    2 is live and 1 previous (both loaded), 3 is retired, 4 refused. `theirs` belongs to another tenant.
    """

    running: Running
    journal: Journal
    store: AdapterStore
    settings: Settings

    def get(self, path: str, key: str = "viewer", **options: Any) -> Any:
        with self.running.client(key) as client:
            return client.get(f"/admin{path}", **options)

    def post(self, path: str, body: Any = None, key: str = "operator", **options: Any) -> Any:
        given = {"json": body or {}} if "content" not in options else {}
        with self.running.client(key) as client:
            return client.post(f"/admin{path}", **given, **options)

    def live(self) -> int | None:
        with self.journal.read() as session:
            return lifecycle.alias(session, "agent")

    def audit(self) -> list[tuple[str, str, str]]:
        with self.journal.read() as session:
            rows = session.query(AuditRow).order_by("audit_id").all()
            return [(row.actor, row.action, row.object) for row in rows]

    def speaks(self) -> str:
        """The version that answers a request now, from the response's header."""
        reply = self.running.chat()
        assert reply.status_code == 200, reply.text
        return str(reply.headers["x-burnish-version"])


def add_version(
    journal: Journal, store: AdapterStore, number: int, state: str | None = None, agent: str = "agent", **facts: Any
) -> Path:
    """A version with real files. It is decided as `state` says, or stays a candidate."""
    with store.aside(agent, number) as directory:
        fill(directory)
        path = store.publish(agent, number, directory, FACTS | facts)
    digest = store.manifest(agent, number)["files"]["adapter_model.safetensors"]
    with journal.write() as session:
        lifecycle.announce(session, agent, number, parent=number - 1, step_id=None, digest=digest)
        session.flush()
        if state is not None:
            row = lifecycle.version(session, agent, number)
            row.state, row.reason, row.decided_at = (
                state,
                "unlearned 9 of 64" if state == "refused" else None,
                float(number),
            )
            session.get_one(LoadJob, f"{agent}@v{number}").state = "done"
    return path


def keep_keys(settings: Settings, journal: Journal) -> None:
    """Copy the serving table's keys to the journal, because the table is rebuilt from there."""
    with journal.write() as session:
        for key in serving_table.watch(settings.run_dir / "routes.json").current().keys.values():
            fields = {"scopes": sorted(key.scopes), "agents": sorted(key.agents), "created_at": 1.0}
            session.add(KeyRow(key_id=key.key_id, digest=key.digest, tenant=key.tenant, name=key.name, **fields))


@contextmanager
def registered(folder: Path) -> Iterator[Registered]:
    stub = StubEngine(api_key=ENGINE_KEY, loaded={"agent@v1": "/a/1", "agent@v2": "/a/2"})
    settings = Settings(state_dir=folder, engine=Engine(urls=(stub.url,), api_key=ENGINE_KEY))
    journal, store = prepare(settings), AdapterStore.of(settings)
    for number, state in ((1, "retired"), (2, "retired"), (3, "retired"), (4, "refused")):
        add_version(journal, store, number, state)
    with journal.write() as session:
        lifecycle.ensure_agent(session, "theirs", "other")
        lifecycle.ensure_agent(session, "second")
    for number in (1, 2):
        with journal.write() as session:
            lifecycle.promote(session, "agent", number, expected=number - 1, actor="gate", reason="passed")
    with stub, serve(folder, stub, fallback=admin_app(settings, journal)) as running:
        keep_keys(settings, journal)
        yield Registered(running, journal, store, settings)
    journal.close()
