"""The world of personal agents in one process: gateway, ingester, swapper and SQLite around one engine."""

import asyncio
import time

from sqlalchemy import select

from burnish import serving_table
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import lifecycle
from burnish.adapters.serving.prepare import admin_key_file, prepare
from burnish.config import BASE_NAME, Settings
from burnish.journal import Journal
from burnish.journal.tables import AgentRow, InteractionRow, VersionRow
from burnish.records import VersionState
from burnish.server.ingest.ingester import Ingester
from burnish.server.rollout.engine.vllm import VllmEngine
from burnish.server.rollout.forgetting_prompts import RetentionSet
from burnish.server.rollout.swapper import Swapper
from tests.fakes import make_version
from tests.server.gateway.gateways import Running


class World:
    """All parts but the learner, in one process."""

    def __init__(self, gateway: Running, settings: Settings, retention: RetentionSet | None = None) -> None:
        self.gateway = gateway
        self.retention = retention or RetentionSet(())
        self.settings = settings
        self.journal: Journal = prepare(settings)
        self.back_end = admin_key_file(settings).read_text().strip()
        self.store = AdapterStore(settings.adapters_dir)
        self.file = settings.run_dir / "routes.json"
        self.ingester = Ingester(self.journal, settings.segments_dir, session_timeout=3600, personal=settings.personal)

    def parent_is(self, number: int) -> None:
        """Give `agent` a live version that was made by hand."""
        make_version(self.store, number)
        with self.journal.write() as session:
            row = {
                "agent": "agent",
                "version": number,
                "parent": number - 1,
                "digest": "d",
                "state": VersionState.CANDIDATE,
            }
            session.add(VersionRow(**row, evidence={}, created_at=0.0))
            session.flush()
            lifecycle.promote(session, "agent", number, expected=number - 1, actor="test")
        self.gateway.engine.loaded[f"agent@v{number}"] = "here"
        prepare(self.settings).close()

    def ask(self, user: str | None = None, key: str | None = None, **body: object) -> str:
        """The version that answers `user`."""
        given = {"user": user, **body} if user else body
        reply = self.gateway.chat(key or self.back_end, **given)
        assert reply.status_code == 200, reply.text
        return str(reply.headers["x-burnish-version"])

    def settle(self, n_rounds: int = 6) -> None:
        """Let ingester and swapper do all pending work."""
        time.sleep(0.06)
        self.ingester.run_once()
        asyncio.run(self._swap(n_rounds))

    async def _swap(self, n_rounds: int) -> None:
        engine = VllmEngine(self.settings.engine.urls[0], self.settings.engine.api_key)
        swapper = Swapper(
            self.journal,
            self.store,
            [engine],
            self.file,
            base_name=BASE_NAME,
            tolerance=2e-3,
            retention=self.retention,
            retention_margin=0.1,
            personal=self.settings.personal,
        )
        for _ in range(n_rounds):
            await swapper.run_once()
        await engine.close()

    def unused_for(self, agent: str, hours: float) -> None:
        with self.journal.write() as session:
            session.get_one(AgentRow, agent).last_used_at = time.time() - hours * 3600

    def table(self) -> dict[str, serving_table.AgentRoute]:
        return dict(serving_table.watch(self.file).current().agents)

    def turns(self) -> list[tuple[str, int, str | None]]:
        with self.journal.read() as session:
            rows = session.scalars(select(InteractionRow)).all()
        return [(row.agent, row.version, row.user) for row in sorted(rows, key=lambda row: row.ended_at)]
