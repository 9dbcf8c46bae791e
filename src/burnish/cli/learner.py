"""`burnish learner`: run the part, or see what it did; `burnish learn --replay`: make a past version again."""

from pathlib import Path
from typing import Annotated

import typer

from burnish.adapters.registry import agents
from burnish.adapters.verbs.answers import asked, paused
from burnish.cli import learner_tables as tables
from burnish.cli.common import (
    AgentName,
    AsJson,
    ConfigFile,
    Overrides,
    Reason,
    StateDir,
    answer,
    console,
    load_settings,
    out,
    print_json,
)
from burnish.config import Settings
from burnish.errors import ConfigError
from burnish.journal import Journal, steps

app = typer.Typer(help="Run the learner alone; with a verb, see what it did.", invoke_without_command=True)


@app.callback()
def run(context: typer.Context, file: ConfigFile = None, overrides: Overrides = None) -> None:
    """Train adapters from judged turns; without a verb it runs until it is stopped."""
    if context.invoked_subcommand is None:
        from burnish.cli.parts import run_part

        run_part("learner", file, overrides)


@app.command()
def status(agent: AgentName = None, file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False) -> None:
    """Show what waits to be learned, what is on trial, what was dropped and why, and the last step."""
    settings, journal = _open(file, state)
    with journal.read() as session:
        told = steps.standing(session, agent or settings.agent.name)
    told |= {"min_rows": settings.recipe.min_rows, "is_enabled": settings.learner.enabled}
    print_json(told) if as_json else out.print(tables.standing(told))


@app.command()
def runs(
    limit: Annotated[int, typer.Option(min=1, help="So many of the latest steps.")] = 20,
    agent: AgentName = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List the latest steps: rows, reward, loss, gradient, time, and what became of them."""
    settings, journal = _open(file, state)
    name = agent or settings.agent.name
    with journal.read() as session:
        found = steps.runs(session, name, limit)
    if as_json:
        print_json(found)
    elif found:
        out.print(tables.runs(name, found))
    else:
        out.print(f"{name} has taken no step yet; `burnish learner status` says what it waits for.")


@app.command()
def show(
    version: int, agent: AgentName = None, file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False
) -> None:
    """Show one step: the rows it used and left out with the reasons, its losses, ratios and times."""
    settings, journal = _open(file, state)
    with journal.read() as session:
        told = steps.story(session, agent or settings.agent.name, version)
    print_json(told) if as_json else out.print(tables.story(told))


@app.command()
def pause(
    agent: AgentName = None,
    reason: Reason = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Take no further step; serving, recording and judging go on."""
    _set_paused(True, agent, reason, file, state, as_json)


@app.command()
def resume(
    agent: AgentName = None,
    reason: Reason = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Learn again after `pause`, or after a monitor was red."""
    _set_paused(False, agent, reason, file, state, as_json)


@app.command()
def step(
    agent: AgentName = None,
    reason: Reason = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Take one step as soon as possible, however few rows are ready, paused or not."""
    settings, journal = _open(file, state)
    name = agent or settings.agent.name
    with journal.write() as session:
        n_ready = agents.ask_step(session, name, actor="cli", reason=reason)
    answer(asked(name, n_ready), {"agent": name, "n_ready": n_ready}, as_json)


def learn(
    replay: Annotated[int, typer.Option("--replay", min=1, help="The version to make again from the journal.")],
    agent: AgentName = None,
    keep: Annotated[Path | None, typer.Option("--keep", help="Folder to keep the remade adapter in.")] = None,
    file: ConfigFile = None,
    overrides: Overrides = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a past version again from its parent and the recorded rows, and say whether it comes out the same.

    Ends with status 1 where it does not. Nothing is published and nothing served changes.
    """
    from burnish.learner.run.reproduce import replay as make_again

    settings = load_settings(file, overrides, state)
    journal = Journal.open(settings.journal_url, migrate=False)
    if keep is not None and keep.exists():
        raise ConfigError(f"--keep: {keep} exists already; name a new folder")
    with console.status(f"making {agent or settings.agent.name}@v{replay} again"):
        told = make_again(settings, journal, agent or settings.agent.name, replay, keep)
    print_json(told.to_json()) if as_json else out.print(tables.replayed(told))
    if not told.is_same:
        raise typer.Exit(1)


def _set_paused(
    is_paused: bool, agent: str | None, reason: str | None, file: Path | None, state: Path | None, as_json: bool
) -> None:
    settings, journal = _open(file, state)
    name = agent or settings.agent.name
    with journal.write() as session:
        agents.set_paused(session, name, is_paused, actor="cli", reason=reason)
    answer(paused(name, is_paused), {"agent": name, "is_paused": is_paused}, as_json)


def _open(file: ConfigFile, state: StateDir) -> tuple[Settings, Journal]:
    settings = load_settings(file, None, state)
    return settings, Journal.open(settings.journal_url, migrate=False)
