"""`burnish learner`: show its steps and what it waits for; pause, resume, one step; reproduce a past version."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from burnish.adapters.registry import agents
from burnish.adapters.registry.learning_state import learning_state
from burnish.adapters.serving.prepare import noted_model
from burnish.adapters.verbs.answers import asked, paused
from burnish.cli.common import (
    AgentName,
    AsJson,
    ConfigFile,
    Limit,
    Overrides,
    Reason,
    StateDir,
    Version,
    answer,
    console,
    example,
    existing,
    load_settings,
    out,
    print_json,
)
from burnish.cli.tables import learner as tables
from burnish.config.overrides import laid_over
from burnish.errors import ConfigError, RequestError
from burnish.journal import Journal, steps
from burnish.journal.tables import AgentRow

app = typer.Typer(
    help="Show the learner's steps, pause or resume it, take a step, reproduce a version.",
    epilog=example("learner status", "learner step --reason before-the-weekend"),
    no_args_is_help=True,
)


@app.command(epilog=example("learner status"))
def status(agent: AgentName = None, file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False) -> None:
    """Show what learning is doing, the waiting rows, the dropped rows with reasons, and the last step."""
    settings, journal, name = existing(file, state, agent)
    if (model := noted_model(settings)) is not None:  # `up` may have been told it on its command line
        settings = load_settings(file, [f"engine.model={model}"], state)
    with journal.read() as session:
        if (row := session.get(AgentRow, name)) is not None:
            with suppress(RequestError):  # stored by an earlier release; the learner says so
                settings = laid_over(settings, row.settings)
        report = steps.standing(session, name)
        report["learning"] = learning_state(session, settings, name).sentence
    report |= {"min_rows": settings.recipe.min_rows, "is_enabled": settings.learner.enabled}
    print_json(report) if as_json else out.print(tables.standing(report))


@app.command(epilog=example("learner runs --limit 5"))
def runs(
    limit: Limit = 20,
    agent: AgentName = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List the latest steps: rows, reward, loss, gradient, time, outcome."""
    _, journal, name = existing(file, state, agent)
    with journal.read() as session:
        found = steps.runs(session, name, limit)
    if as_json:
        print_json(found)
    elif found:
        out.print(tables.runs(name, found))
    else:
        out.print(f"The learner of {name} has taken no step yet. `burnish learner status` shows what it waits for.")


@app.command(epilog=example("learner show 12"))
def show(
    version: Version, agent: AgentName = None, file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False
) -> None:
    """Show the step that made a version: used rows, unused rows with reasons, losses, ratios, times."""
    _, journal, name = existing(file, state, agent)
    with journal.read() as session:
        report = steps.story(session, name, version)
    print_json(report) if as_json else out.print(tables.story(report))


@app.command(epilog=example("learner pause --reason audit-week"))
def pause(
    agent: AgentName = None,
    reason: Reason = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Pause the learner. Serving, recording and judging go on."""
    _set_paused(True, agent, reason, file, state, as_json)


@app.command(epilog=example("learner resume"))
def resume(
    agent: AgentName = None,
    reason: Reason = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Take steps again after a pause, or after a monitor was red."""
    _set_paused(False, agent, reason, file, state, as_json)


@app.command(epilog=example("learner step --agent support"))
def step(
    agent: AgentName = None,
    reason: Reason = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Take one step as soon as possible, even with few rows, even while paused."""
    _, journal, name = existing(file, state, agent)
    with journal.write() as session:
        n_ready = agents.ask_step(session, name, actor="cli", reason=reason)
    answer(asked(name, n_ready), {"agent": name, "n_ready": n_ready}, as_json)


@app.command(epilog=example("learner reproduce 12", "learner reproduce 12 --output out/v12"))
def reproduce(
    version: Version,
    agent: AgentName = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="New directory for the resulting adapter.")
    ] = None,
    file: ConfigFile = None,
    overrides: Overrides = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a past version again from its parent and the recorded rows, and compare the weights.

    Exit status 1 if they differ. Nothing is published, and the live version stays.
    """
    from burnish.learner.run.reproduce import reproduce as make_again

    settings = load_settings(file, overrides, state)
    journal = Journal.open(settings.journal_url, migrate=False)
    if output is not None and output.exists():
        raise ConfigError(f"--output: expected a new directory, but {output} exists; choose another name")
    with console.status(f"making {agent or settings.agent.name}@v{version} again"):
        report = make_again(settings, journal, agent or settings.agent.name, version, output)
    print_json(report.to_json()) if as_json else out.print(tables.reproduced(report))
    if not report.is_same:
        raise typer.Exit(1)


def _set_paused(
    is_paused: bool, agent: str | None, reason: str | None, file: Path | None, state: Path | None, as_json: bool
) -> None:
    _, journal, name = existing(file, state, agent)
    with journal.write() as session:
        agents.set_paused(session, name, is_paused, actor="cli", reason=reason)
    answer(paused(name, is_paused), {"agent": name, "is_paused": is_paused}, as_json)
