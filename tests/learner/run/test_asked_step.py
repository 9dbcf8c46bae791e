"""A step that an operator requests is taken once, with few rows and while paused."""

from pathlib import Path

from world import Make, World

from burnish.adapters.registry import agents
from burnish.journal import Journal


def test_one_step_is_taken_on_request(journal: Journal, tmp_path: Path, make_trainer: Make) -> None:
    world = World(journal, tmp_path, make_trainer)
    world.add(2)
    with journal.write() as session:
        agents.set_paused(session, "agent", True, actor="ana")
    assert not world.loop.run_once()
    with journal.write() as session:
        assert agents.ask_step(session, "agent", actor="ana") == 2
    assert world.loop.run_once()
    assert [(version, outcome) for version, _, outcome, _ in world.steps()] == [(1, "open")]
    world.promote(1, 0)
    world.add(2)
    assert not world.loop.run_once()  # still paused, and there is no second request
