"""`burnish canary`: put a version on a share of the traffic, end that, see what the tests say."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from burnish.cli.common import AsJson, ConfigFile, StateDir, load_settings, out, print_json
from burnish.config import Settings
from burnish.journal import Journal
from burnish.records import Observation

app = typer.Typer(help="Versions on a share of the traffic, and the watch over what is live.", no_args_is_help=True)
AgentName = Annotated[str | None, typer.Option("--agent", help="Agent (default: the configured one).")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command()
def status(
    limit: Annotated[int, typer.Option(min=1, help="So many of the latest.")] = 10,
    agent: AgentName = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show canaries and watches, newest first: turns, evidence of each test, what became of them and why."""
    from burnish.adapters.verbs import canary

    _, journal, name = _open(file, state, agent)
    with journal.read() as session:
        told = canary.status(session, name, limit)
    if as_json:
        print_json(told)
        return
    out.print(f"{name}: v{told['live']} is live; {_standing(told)}", soft_wrap=True)
    if not told["observations"]:
        out.print("no canary and no watch so far")
        return
    table = Table("what", "beside", "share", "state", "begun", "judged turns", "evidence")
    for row in told["observations"]:
        begun = time.strftime("%m-%d %H:%M:%S", time.localtime(row["started_at"]))
        share = f"{row['share']:.0%}" if row["share"] else ""
        what = f"{row['kind']} of v{row['version']}"
        table.add_row(what, f"v{row['baseline']}", share, row["state"], begun, _turns(row), _tests(row))
    out.print(table)
    for row in told["observations"]:
        if row["reason"]:
            out.print(f"{row['kind']} of v{row['version']} {row['state']}: {row['reason']}", soft_wrap=True)


@app.command()
def start(
    version: int,
    share: Annotated[
        float | None, typer.Option(min=0.001, max=0.5, help="Share of the conversations (default: canary.share).")
    ] = None,
    agent: AgentName = None,
    yes: Yes = False,
    file: ConfigFile = None,
    state: StateDir = None,
) -> None:
    """Put an older version on canary beside what is live; passing makes it live, failing refuses it."""
    from burnish.adapters.verbs import canary

    settings, journal, name = _open(file, state, agent)
    if not yes:
        typer.confirm(
            f"Let {name}@v{version} answer {share or settings.canary.share:.0%} of the conversations?", abort=True
        )
    out.print(canary.start(settings, journal, name, version, share=share, actor="cli"))


@app.command()
def stop(
    watch: Annotated[bool, typer.Option("--watch", help="End the watch over what is live, not the canary.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why; kept in the audit log.")] = None,
    agent: AgentName = None,
    yes: Yes = False,
    file: ConfigFile = None,
    state: StateDir = None,
) -> None:
    """End the canary and refuse its version; with --watch, end the watch and leave live what is live."""
    from burnish.adapters.verbs import canary

    settings, journal, name = _open(file, state, agent)
    kind = Observation.WATCH if watch else Observation.CANARY
    if not yes:
        typer.confirm(f"End the {kind} of {name}?", abort=True)
    out.print(canary.stop(settings, journal, name, kind=kind, actor="cli", reason=reason))


def _open(file: Path | None, state: Path | None, agent: str | None) -> tuple[Settings, Journal, str]:
    from burnish.adapters.serving.prepare import prepare

    settings = load_settings(file, None, state)
    return settings, prepare(settings), agent or settings.agent.name


def _standing(told: dict[str, Any]) -> str:
    if told["held"]:
        return f"held, nothing is promoted by itself: {told['held']}" + (
            "; learning is paused" if told["learning_paused"] else ""
        )
    return "learning is paused" if told["learning_paused"] else "versions are promoted by themselves"


def _turns(row: dict[str, Any]) -> str:
    if "turns" not in row:
        return ""
    mine, other = row["turns"]["version"], row["turns"]["baseline"]
    against = (
        f"rate {row['baseline_rate']:.0%}"
        if row["baseline_rate"] is not None
        else f"{other['good']} of {other['judged']}"
    )
    return f"{mine['good']} of {mine['judged']} good; {against}"


def _tests(row: dict[str, Any]) -> str:
    """The test of rewards, and whatever else has seen something."""
    told = {name: test for name, test in row.get("tests", {}).items() if name == "reward" or test["log_e_peak"] >= 1.0}
    return "\n".join(f"{name} {test['evidence']} (acts at {1 / test['alpha']:.0f})" for name, test in told.items())
