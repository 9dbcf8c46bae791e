"""One agent's journal, store and learner, with a tiny model, for the tests of the loop and of the replay."""

from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tiny import interaction

from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import lifecycle
from burnish.config import Recipe
from burnish.journal import Journal, shadows
from burnish.journal.shadows import Drawn
from burnish.journal.tables import InteractionRow, SampleRow, ShadowGroupRow, StepRow
from burnish.learner.run.ledger import Ledger
from burnish.learner.run.loop import Loop
from burnish.learner.run.trainer import Trainer
from tests.turns import add_feedback, add_turn

SETTINGS: dict[str, Any] = {"rank": 4, "learning_rate": 1e-2, "min_rows": 4, "max_rows": 8}
Make = Callable[..., Trainer]
DRAWN = ([11, 21, 0], [12, 22, 32, 42, 0])
"""Replies of a shadow group."""


class World:
    """One agent's journal, store and learner."""

    def __init__(self, journal: Journal, folder: Path, make_trainer: Make) -> None:
        self.journal = journal
        self.ledger = Ledger(journal, "agent")
        self.store = AdapterStore(folder / "adapters")
        self.make_trainer = make_trainer
        self.trainer = make_trainer(**SETTINGS)
        self.loop = self.learner(self.trainer)
        self.n_turns = 0
        with journal.write() as session:
            lifecycle.ensure_agent(session, "agent")

    def learner(self, trainer: Trainer | None = None, **changes: Any) -> Loop:
        """A learner's process begins."""
        recipe = Recipe(**SETTINGS | changes)
        return Loop(self.ledger, self.store, trainer or self.make_trainer(**SETTINGS), recipe, None)

    def add(self, n: int, *, rating: float | None = None, **changes: Any) -> list[str]:
        """`n` ready turns with alternating ratings, identified by number, the same for the same numbers."""
        names = []
        for _ in range(n):
            i, self.n_turns = self.n_turns, self.n_turns + 1
            turn = interaction(self.trainer.policy.tokenizer, f"copy {i}", interaction_id=f"t{i}", request_id=f"r{i}")
            reply = [10 + i % 7, 20 + i % 5, 30, 0]
            turn = replace(
                turn, version=0, token_ids=array("i", reply), logprobs=array("f", [-5.0] * 4), ended_at=float(i)
            )
            add_turn(self.journal, replace(turn, **changes), is_ready=True)
            add_feedback(self.journal, turn.interaction_id, (1.0 if i % 2 else -1.0) if rating is None else rating)
            names.append(turn.interaction_id)
        return names

    def promote(self, number: int, expected: int) -> None:
        with self.journal.write() as session:
            lifecycle.promote(session, "agent", number, expected=expected, actor="gate")

    def refuse(self, number: int) -> None:
        with self.journal.write() as session:
            lifecycle.refuse(session, "agent", number, reason="no", evidence={})

    def steps(self) -> list[tuple[int, int, str, int]]:
        with self.journal.read() as session:
            rows = session.query(StepRow).order_by("version").all()
            return [(row.version, row.parent, row.outcome, row.attempt) for row in rows]

    def states(self) -> dict[int, str]:
        with self.journal.read() as session:
            return {row.version: row.state for row in lifecycle.versions(session, "agent")}

    def spent(self) -> dict[str, int | None]:
        with self.journal.read() as session:
            return {row.interaction_id: row.spent_step for row in session.query(InteractionRow).all()}

    def skip_reasons(self) -> dict[str, str | None]:
        with self.journal.read() as session:
            return {row.interaction_id: row.skip_reason for row in session.query(InteractionRow).all()}

    def rows_of(self, version: int) -> list[str]:
        with self.journal.read() as session:
            step = session.query(StepRow).filter_by(agent="agent", version=version).one()
            return sorted(row.interaction_id for row in session.query(SampleRow).filter_by(step_id=step.step_id).all())

    def files(self) -> list[str]:
        home = self.store.root / "agent"
        return sorted(path.name for path in home.iterdir()) if home.exists() else []

    def digest(self, version: int, name: str) -> str:
        return str(self.store.verify("agent", version)["files"][name])


def draw(world: World, name: str, replies: Any = DRAWN, wish: str = "Use bold.") -> None:
    """A group of `name`'s reply and `replies`, without a request to a judge."""
    message = {"role": "assistant", "content": "x"}
    drawn = [Drawn(message, "stop", array("i", ids), array("f", [-5.0] * len(ids))) for ids in replies]
    with world.journal.write() as session:
        assert shadows.begin(session, session.get_one(InteractionRow, name), len(drawn) + bool(wish), wish, "j")
        assert shadows.file(session, name, drawn, for_judge=False)


def outcome_of(world: World, name: str) -> tuple[str, str | None, list[float | None]]:
    with world.journal.read() as session:
        row = session.get_one(ShadowGroupRow, name)
        return row.state, row.reason, [row.score, *(member.score for member in shadows.members_of(session, name))]
