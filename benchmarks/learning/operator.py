"""The operator of a run: in a hurry, lets everything go on."""

from benchmarks.learning.stack import Stack
from burnish.adapters.registry import agents, canaries

ACTOR = "hurried operator"


def let_go_on(stack: Stack) -> tuple[bool, bool]:
    """Release a hold and resume learning, whatever they were for; whether there was either of them."""
    with stack.journal.read() as session:
        row = agents.find(session, stack.agent)
        was_held, was_paused = row.held is not None, row.is_paused
    if was_held or was_paused:
        with stack.journal.write() as session:
            if was_held:
                agents.end_hold(session, stack.agent, actor=ACTOR)
                canaries.wake(session, stack.agent)
            if was_paused:
                agents.set_paused(session, stack.agent, False, actor=ACTOR)
    return was_held, was_paused
