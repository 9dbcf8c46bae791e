"""The world of the swapper's tests: a prepared state directory with fake engines and a swapper."""

import json
import re
import time
from pathlib import Path
from typing import Any

from burnish import config, serving_table
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import lifecycle
from burnish.adapters.serving.prepare import prepare
from burnish.journal.tables import InteractionRow, LoadJob, SampleRow, StepRow
from burnish.server.rollout.forgetting_prompts import RetentionPrompt, RetentionSet
from burnish.server.rollout.swapper import Swapper
from tests.factories import interaction, user
from tests.fakes import FakeEngine, make_version
from tests.turns import add_turn

PROMPTS = [RetentionPrompt([user(f"question {i}")], (), re.compile("ok")) for i in range(64)]
ACCEPTED = [RetentionPrompt([user(f"accept {i}")], (), re.compile("ok")) for i in range(10)]


class World:
    """A prepared state directory with fake engines and a swapper."""

    def __init__(self, folder: Path, n_engines: int = 1) -> None:
        self.settings = config.load(flags={"state_dir": str(folder), "engine.urls": ["http://engine"]})
        self.journal = prepare(self.settings)
        self.store = AdapterStore(self.settings.adapters_dir)
        self.engines = [FakeEngine(f"http://engine-{i}") for i in range(n_engines)]
        self.file = self.settings.run_dir / "routes.json"
        self.swapper = self.restarted()

    @property
    def engine(self) -> FakeEngine:
        return self.engines[0]

    def restarted(self) -> Swapper:
        """A swapper like its process's."""
        self.swapper = Swapper(
            self.journal,
            self.store,
            self.engines,
            self.file,
            base_name="base",
            tolerance=1e-3,
            retention=RetentionSet(PROMPTS),
            retention_margin=0.1,
        )
        return self.swapper

    def announce(self, number: int, parent: int | None = None) -> None:
        """Publish version `number`, trained from the live one on one row, like a learner."""
        parent = self.live() if parent is None else parent
        make_version(self.store, number)
        row = add_turn(self.journal, interaction([user("hi")], interaction_id=f"row-{number}"))
        with self.journal.write() as session:
            step = StepRow(agent="agent", version=number, parent=parent, outcome="open", metrics={}, started_at=0.0)
            session.add(step)
            session.flush()
            session.add(SampleRow(step_id=step.step_id, interaction_id=row, record_ids=[]))
            lifecycle.announce(session, "agent", number, parent=parent, step_id=step.step_id, digest="d")

    async def publish(self, *numbers: int) -> None:
        """Make versions live one after the other."""
        for number in numbers:
            self.announce(number)
            assert await self.swapper.run_once()
            assert self.live() == number

    def live(self) -> int:
        """The served version. Checks that registry and serving table agree."""
        with self.journal.read() as session:
            live = lifecycle.alias(session, "agent")
        assert self.route().live == live
        return live or 0

    def route(self) -> serving_table.AgentRoute:
        return serving_table.watch(self.file).current().agents["agent"]

    def job(self, subject: str) -> LoadJob:
        with self.journal.read() as session:
            return session.get_one(LoadJob, subject)

    def make_due(self) -> None:
        with self.journal.write() as session:
            for row in session.query(LoadJob).all():
                row.run_after = 0.0

    def version(self, number: int) -> Any:
        with self.journal.read() as session:
            return lifecycle.version(session, "agent", number)

    def outcome(self, number: int) -> tuple[str, bool]:
        """The step's outcome and whether its row is spent."""
        with self.journal.read() as session:
            step = session.query(StepRow).filter_by(version=number).one()
            return step.outcome, session.get_one(InteractionRow, f"row-{number}").spent_step == step.step_id

    def gateway_reports(self, generation: int | None = None, **in_flight: int) -> None:
        """Write a living gateway's report: the generation that it has seen and its running requests."""
        seen = serving_table.watch(self.file).current().generation if generation is None else generation
        report = {"at": time.time(), "generation": seen, "in_flight": in_flight}
        (self.file.parent / "gateway-1.json").write_text(json.dumps(report))
