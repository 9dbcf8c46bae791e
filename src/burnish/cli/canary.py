"""`burnish canary`: canaries, shadow canaries and watches."""

import time
from typing import Annotated, Any

import typer

from burnish.cli.common import (
    AgentName,
    AsJson,
    ConfigFile,
    Limit,
    Reason,
    StateDir,
    Version,
    Yes,
    answer,
    confirm,
    counted,
    example,
    out,
    prepared,
    print_json,
)
from burnish.cli.tables import Listing
from burnish.records import Observation

app = typer.Typer(
    help="Show, start and stop canaries and watches.",
    epilog=example("canary status", "canary start 7 --share 0.2"),
    no_args_is_help=True,
)


@app.command(epilog=example("canary status --limit 2"))
def status(
    limit: Limit = 10,
    agent: AgentName = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show canaries and watches, newest first: turns, evidence of each test, outcome and reason."""
    from burnish.adapters.verbs import canary

    _, journal, name = prepared(file, state, agent)
    with journal.read() as session:
        report = canary.status(session, name, limit)
    if as_json:
        print_json(report)
        return
    out.print(f"{name}: v{report['live']} is live; {_promotion_state(report)}", soft_wrap=True)
    if not report["observations"]:
        out.print("no canary and no watch so far")
        return
    table = Listing("what", "compared with", "share", "state", "began", "judged turns", "evidence", least=("began",))
    for row in report["observations"]:
        began = time.strftime("%m-%d %H:%M:%S", time.localtime(row["started_at"]))
        share = f"{row['share']:.0%}" if row["share"] else ""
        what = f"{row['kind']} of v{row['version']}"
        table.add_row(what, f"v{row['baseline']}", share, row["state"], began, _turns(row), _tests(row))
    out.print(table)
    for row in report["observations"]:
        if row["reason"]:
            out.print(f"{row['kind']} of v{row['version']} {row['state']}: {row['reason']}", soft_wrap=True)
    if (slices := report["slices"]) and slices["by_slice"]:
        worst = slices["by_slice"][0]
        what = f"{slices['of']} of v{slices['version']}, {counted(len(slices['by_slice']), 'slice')}"
        out.print(f"{what}: worst in {worst['slice']!r}, evidence {worst['odds']} to 1 that it fell", soft_wrap=True)


@app.command(epilog=example("canary start 7 --share 0.2"))
def start(
    version: Version,
    share: Annotated[
        float | None, typer.Option(min=0.001, max=0.5, help="Share of the conversations (default: canary.share).")
    ] = None,
    agent: AgentName = None,
    yes: Yes = False,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Start a canary of an older version. If it passes, the version goes live. If it fails, the version is refused."""
    from burnish.adapters.verbs import canary

    settings, journal, name = prepared(file, state, agent)
    confirm(f"Let {name}@v{version} answer {share or settings.canary.share:.0%} of the conversations?", yes)
    done = canary.start(settings, journal, name, version, share=share, actor="cli")
    answer(done, {"agent": name, "version": version}, as_json)


@app.command(epilog=example("canary stop --reason rude", "canary stop --watch --yes"))
def stop(
    watch: Annotated[
        bool, typer.Option("--watch", help="Stop the watch over the live version, not the canary.")
    ] = False,
    reason: Reason = None,
    agent: AgentName = None,
    yes: Yes = False,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Stop the canary and refuse its version. With --watch, stop the watch over the live version."""
    from burnish.adapters.verbs import canary

    settings, journal, name = prepared(file, state, agent)
    kind = Observation.WATCH if watch else Observation.CANARY
    confirm(f"Stop the {kind} of {name}?", yes)
    done = canary.stop(settings, journal, name, kind=kind, actor="cli", reason=reason)
    answer(done, {"agent": name, "kind": kind}, as_json)


def _promotion_state(report: dict[str, Any]) -> str:
    if report["held"]:
        return f"on hold, nothing is promoted automatically: {report['held']}" + (
            "; learning is paused" if report["learning_paused"] else ""
        )
    return "learning is paused" if report["learning_paused"] else "versions are promoted automatically"


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
    """The test of rewards, and each other test that has some evidence."""
    report = {
        name: test for name, test in row.get("tests", {}).items() if name == "reward" or test["log_e_peak"] >= 1.0
    }
    return "\n".join(f"{name} {test['evidence']} (acts at {1 / test['alpha']:.0f})" for name, test in report.items())
