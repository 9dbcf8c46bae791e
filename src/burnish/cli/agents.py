"""`burnish agents`: list, show and create agents, change an agent's own settings, end a hold."""

import json
from typing import Annotated

import typer
from rich.markup import escape

from burnish.adapters.registry import agents
from burnish.adapters.registry.lineage import aliases_of
from burnish.adapters.verbs.answers import described, hold_ended
from burnish.cli.common import (
    AgentName,
    AsJson,
    ConfigFile,
    Reason,
    StateDir,
    Yes,
    answer,
    confirm,
    example,
    out,
    pairs,
    prepared,
    print_json,
)
from burnish.cli.tables import Listing, facts
from burnish.config import BASE_NAME, overrides
from burnish.journal.summary import summary
from burnish.journal.tables import AgentRow

app = typer.Typer(
    help="List, show and create agents, change their settings, end a hold.",
    epilog=example("agents list", "agents create support --set learner.min_rows=8"),
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="The agent's name: the model name that clients ask for.")]
Own = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting of this agent only; repeatable."),
]


@app.command("list", epilog=example("agents list --json"))
def list_(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's agents.")] = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List all agents and their versions."""
    _, journal, _ = prepared(file, state, None)
    with journal.read() as session:
        rows = [described(row, aliases_of(session, row.name)) for row in agents.listed(session, tenant)]
    if as_json:
        print_json({"agents": rows})
        return
    table = Listing(
        "agent", "tenant", "live", "previous", "learner", "held", "own settings", least=("tenant", "previous")
    )
    for row in rows:
        live, previous = (row["aliases"].get(name) for name in ("live", "previous"))
        own = ", ".join(f"{key}={json.dumps(value)}" for key, value in row["settings"].items())
        shown = (f"v{live}" if live is not None else "", f"v{previous}" if previous is not None else "")
        table.add_row(
            row["name"],
            row["tenant"],
            *shown,
            "paused" if row["is_paused"] else "",
            escape(row["held"] or ""),
            escape(own),
        )
    out.print(table)


@app.command(epilog=example("agents show support"))
def show(name: Name, file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False) -> None:
    """Show one agent: its settings, aliases and counts."""
    _, journal, _ = prepared(file, state, None)
    with journal.read() as session:
        report = {**described(agents.find(session, name), aliases_of(session, name)), **summary(session, name)}
    if as_json:
        print_json(report)
        return
    out.print(facts(f"agent {name}", report))


@app.command(epilog=example("agents create support --set learner.min_rows=8"))
def create(
    name: Name,
    tenant: Annotated[str, typer.Option(help="Tenant that the agent belongs to.")] = "default",
    own: Own = None,
    reason: Reason = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Create an agent. The base answers for it at once. The same command again changes nothing."""
    from burnish.adapters.serving.prepare import refresh

    settings, journal, _ = prepared(file, state, None)
    wanted = overrides.checked(settings, pairs(own))
    with journal.write() as session:
        is_new = session.get(AgentRow, name) is None
        taken = (BASE_NAME,)
        row = agents.create(session, name, tenant, settings=wanted, taken=taken, actor="cli", reason=reason)
        report = described(row, {0: [agents.LIVE]})
    refresh(settings, journal)
    done = "is created" if is_new else "exists already"
    answer(f"agent {name} of tenant {tenant} {done}", report, as_json)


@app.command("set", epilog=example("agents set support --set learner.min_rows=8 --set gate.tier=fast"))
def set_(
    name: Name,
    own: Own = None,
    reason: Reason = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Replace an agent's own settings. Without --set, remove them all."""
    settings, journal, _ = prepared(file, state, None)
    wanted = overrides.checked(settings, pairs(own))
    with journal.write() as session:
        row = agents.change_settings(session, name, wanted, actor="cli", reason=reason)
        report = described(row, aliases_of(session, name))
    shown = ", ".join(f"{key}={json.dumps(value)}" for key, value in wanted.items()) or "none"
    answer(
        f"agent {name}'s own settings: {shown}; its learner and canaries use them within seconds",
        report,
        as_json,
    )


@app.command("end-hold", epilog=example("agents end-hold --yes --reason fixed"))
def end_hold(
    agent: AgentName = None,
    reason: Reason = None,
    yes: Yes = False,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """End the hold on an agent, so that its versions are promoted automatically again."""
    _, journal, name = prepared(file, state, agent)
    with journal.read() as session:
        held = agents.find(session, name).held
    if held is not None:
        confirm(f"{name} is held: {held}. End the hold?", yes)
    with journal.write() as session:
        held = agents.end_hold(session, name, actor="cli", reason=reason)
    answer(hold_ended(name, held), {"agent": name, "was_held": held}, as_json)
