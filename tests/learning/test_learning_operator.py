"""The operator of a run lets everything go on."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.learning.loop import end_hold_and_resume
from burnish.adapters.registry import agents
from burnish.journal import Journal


def test_a_hold_is_released_and_a_pause_resumed_once(tmp_path: Path) -> None:
    journal = Journal.open(f"sqlite:///{tmp_path}/journal.db")
    stack: Any = SimpleNamespace(journal=journal, agent="agent")
    with journal.write() as session:
        agents.ensure_agent(session, "agent")
        agents.hold(session, "agent", "v2 was rolled back", actor="watch")
        agents.set_paused(session, "agent", True, actor="watch")

    assert end_hold_and_resume(stack) == (True, True)
    assert end_hold_and_resume(stack) == (False, False)

    with journal.read() as session:
        row = agents.find(session, "agent")
        assert (row.held, row.is_paused) == (None, False)
