"""A journal with turns that deserve a shadow group, a stub engine, and the drawer between them."""

import asyncio
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from burnish import config
from burnish.adapters.serving.prepare import prepare, routes_file
from burnish.journal import jobs
from burnish.journal.tables import JobRow, RubricJob, ShadowGroupRow, ShadowJob, ShadowRow
from burnish.journal.turns import record_judgement
from burnish.records import NextStateKind
from burnish.rewards import NEXT_STATE
from burnish.server.rollout.agent_settings import settings_by_agent
from burnish.server.rollout.shadow_groups.drawer import Drawer
from burnish.server.rollout.shadow_groups.engine_source import VllmSource
from burnish.testing import StubEngine
from burnish.testing.stub_reply import EOS, prompt_ids
from tests.factories import interaction, judgement, user
from tests.turns import add_next_state, add_turn


async def until(holds: Callable[[], bool]) -> None:
    """Wait for the stub engine, which runs in a thread of its own."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


class ShadowWorld:
    """One agent at version 0, served by `engine`."""

    def __init__(self, folder: Path, engine: StubEngine, quorum: int = 2, **groups: Any) -> None:
        flags = {
            "state_dir": str(folder),
            "engine.urls": [engine.url],
            "engine.api_key": engine.api_key,
            "gate.tier": "fast",
            "learner.hint_quorum": quorum,
        }
        given = {f"groups.{name}": value for name, value in ({"enabled": True, "grader": "rubric"} | groups).items()}
        self.settings = config.load(flags={**flags, **given})
        self.engine = engine
        self.journal = prepare(self.settings)
        self.source = VllmSource(engine.url, engine.api_key)
        self.drawer = self.restarted()
        self.n_turns = 0

    def restarted(self) -> Drawer:
        """A drawer like its process's."""
        of = settings_by_agent(self.settings, self.journal)
        return Drawer(self.journal, [self.source], routes_file(self.settings), self.settings, of, look=0.02)

    def turn(self, hint: str | None = "Use bold.", **changes: Any) -> str:
        """A live turn that was answered with "ok" and corrected by its user."""
        self.n_turns += 1
        said = [user(f"say {self.n_turns}")]
        asked: dict[str, Any] = {
            "interaction_id": f"t{self.n_turns}",
            "ended_at": time.time() - 10.0 + self.n_turns / 100.0,
            "prompt_ids": array("i", prompt_ids({"messages": said})),
            "token_ids": array("i", [*b"ok", EOS]),
            "logprobs": array("f", [-0.5, -0.25, -0.125]),
        }
        name = add_turn(self.journal, interaction(said, **asked | changes), is_ready=True)
        add_next_state(self.journal, name, NextStateKind.USER_REPLY, user("use bold please"))
        with self.journal.write() as session:
            record_judgement(session, judgement(name, -1 if hint else 1, hint), NEXT_STATE)
        return name

    def group(self, name: str) -> ShadowGroupRow | None:
        with self.journal.read() as session:
            return session.get(ShadowGroupRow, name)

    def shadows(self, name: str) -> list[ShadowRow]:
        with self.journal.read() as session:
            return session.query(ShadowRow).filter_by(interaction_id=name).order_by("member").all()

    def counts(self, table: type[JobRow] = ShadowJob) -> dict[str, int]:
        with self.journal.read() as session:
            return jobs.counts(session, table)

    def make_due(self) -> None:
        """Make waiting jobs due now."""
        with self.journal.write() as session:
            for job in session.query(ShadowJob).all():
                job.run_after = 0.0

    @property
    def n_to_score(self) -> int:
        return self.counts(RubricJob).get("queued", 0)
