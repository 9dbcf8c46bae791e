"""`burnish promote`, `rollback` and `release`: what is live, changed by hand."""

from typing import Annotated

import typer

from burnish.adapters.registry import agents, lifecycle
from burnish.adapters.verbs.answers import released
from burnish.cli.common import AgentName, AsJson, ConfigFile, Expected, Reason, StateDir, Yes, answer, prepared
from burnish.journal import Journal


def promote(
    version: Annotated[int, typer.Argument(min=0, help="Version to make live; 0 is the frozen base.")],
    agent: AgentName = None,
    expected: Expected = None,
    reason: Reason = None,
    yes: Yes = False,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a version live (0 = the frozen base). One that the engine has not loaded is loaded first."""
    from burnish.adapters.verbs.releases import promote as make_live

    settings, journal, name = prepared(file, state, agent)
    if not yes:
        typer.confirm(f"Make {name}@v{version} live?", abort=True)
    done = make_live(settings, journal, name, version, actor="cli", reason=reason, expected=expected)
    answer(done, {"agent": name, "live": _live(journal, name)}, as_json)


def rollback(
    to: Annotated[int | None, typer.Option(min=0, help="Version to go back to (default: the previous one).")] = None,
    agent: AgentName = None,
    expected: Expected = None,
    reason: Reason = None,
    yes: Yes = False,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Go back to the previous version, or to the one named."""
    from burnish.adapters.verbs.releases import rollback as go_back

    settings, journal, name = prepared(file, state, agent)
    if not yes:
        typer.confirm(f"Roll {name} back?", abort=True)
    done = go_back(settings, journal, name, to=to, actor="cli", reason=reason, expected=expected)
    answer(done, {"agent": name, "live": _live(journal, name)}, as_json)


def release(
    agent: AgentName = None,
    reason: Reason = None,
    yes: Yes = False,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Let versions go live by themselves again, after something was rolled back and the agent held."""
    _, journal, name = prepared(file, state, agent)
    with journal.read() as session:
        held = agents.find(session, name).held
    if held is not None and not yes:
        typer.confirm(f"{name} is held: {held}. Release it?", abort=True)
    with journal.write() as session:
        held = agents.release(session, name, actor="cli", reason=reason)
    answer(released(name, held), {"agent": name, "was_held": held}, as_json)


def _live(journal: Journal, agent: str) -> int | None:
    with journal.read() as session:
        return lifecycle.alias(session, agent)
