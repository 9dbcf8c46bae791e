"""`burnish turns`, `export` and `audit`: show, rate and export what the journal holds."""

from pathlib import Path
from typing import Annotated

import typer

from burnish.adapters.registry import audit as log
from burnish.cli.common import (
    AgentName,
    AsJson,
    ConfigFile,
    EveryAgent,
    Limit,
    Since,
    StateDir,
    answer,
    ask_gateway,
    example,
    existing,
    moment,
    out,
    print_json,
    write_lines,
)
from burnish.cli.tables import turns
from burnish.cli.tables.versions import entries
from burnish.errors import NotFound
from burnish.journal import story
from burnish.journal.linked_turns import filed
from burnish.journal.listing import feedback as said_about
from burnish.journal.listing import turns as listing
from burnish.journal.listing.feedback import Said
from burnish.journal.listing.turns import Fate, Wanted
from burnish.journal.training_rows import MIN_REWARD, Format, lines, rows

app = typer.Typer(
    help="List turns and feedback, show a turn with its judgements, reward and training, or rate it.",
    epilog=example("turns list", "turns show chatcmpl-6cd9ac5f"),
    no_args_is_help=True,
)
COLUMNS = ("turn", "version", "kind", "ended_at", "training_status", "prompt")
"""What `turns list --json` has of each turn."""


@app.command("list", epilog=example("turns list --limit 5", "turns list --agent support --json"))
def list_(
    agent: AgentName = None,
    text: Annotated[str, typer.Option(help="Only turns with this text in the newest message or the reply.")] = "",
    version: Annotated[int | None, typer.Option(min=0, help="Only replies of this version.")] = None,
    user: Annotated[str | None, typer.Option(help="Only this user's turns.")] = None,
    fate: Annotated[Fate | None, typer.Option(help="Only turns of which this became.")] = None,
    since: Since = None,
    limit: Limit = 20,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List an agent's latest turns, newest first."""
    _, journal, name = existing(file, state, agent)
    wanted = Wanted(version=version, user=user, fate=fate, text=text, since=moment(since))
    with journal.read() as session:
        found = listing.lines(session, listing.found(session, name, wanted, limit))
    if as_json:
        print_json([{column: line[column] for column in COLUMNS} for line in found])
    else:
        out.print(turns.listed(name, found))


@app.command(epilog=example("turns tokens chatcmpl-6cd9ac5f"))
def tokens(
    turn: Annotated[str, typer.Argument(help="A reply's id.")],
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show a reply's tokens as text, each with its log-prob. The running engine tells the texts."""
    from burnish.server.gateway.admin.records.token_texts import tokens_of

    settings, journal, _ = existing(file, state, None)
    found = tokens_of(settings, journal, turn)
    if as_json:
        print_json({"turn": turn, "tokens": found})
        return
    for each in found:
        out.print(f"{each['logprob']:>9}  {each['text']!r}", markup=False, highlight=False)


@app.command("session", epilog=example("turns session s-1f0c2a", "turns session s-1f0c2a --json"))
def session_(
    name: Annotated[str, typer.Argument(metavar="SESSION", help="The session's id, from `turns show`.")],
    agent: AgentName = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show the turns of one session, oldest first."""
    _, journal, of = existing(file, state, agent)
    with journal.read() as session:
        found = listing.of_session(session, of, name)
    if not found:
        raise NotFound(f"agent {of!r} has no session {name!r}; `burnish turns show` tells a turn's session")
    print_json(found) if as_json else out.print(turns.thread(found))


@app.command(epilog=example("turns feedback --said correction", "turns feedback --json"))
def feedback(
    said: Annotated[Said | None, typer.Option(help="Only feedback with this in it.")] = None,
    agent: AgentName = None,
    limit: Limit = 20,
    tenant: Annotated[str, typer.Option(help="Tenant that the agent belongs to.")] = "default",
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List what people and harnesses said about an agent's replies, newest first."""
    _, journal, name = existing(file, state, agent)
    with journal.read() as session:
        found = said_about.found(session, name, tenant, said, limit)
    print_json(found) if as_json else out.print(turns.said(name, found))


@app.command(epilog=example("turns show chatcmpl-6cd9ac5f", "turns show chatcmpl-6cd9ac5f --json"))
def show(
    turn: Annotated[str, typer.Argument(help="The reply's id, from the response or from `turns list`.")],
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show one turn: messages, next state, votes, reward, and the version that it trained or the reason why not."""
    _, journal, _ = existing(file, state, None)
    with journal.read() as session:
        report = story.tell(session, turn)
    print_json(report) if as_json else out.print(turns.shown(report))


@app.command(
    epilog=example("turns rate chatcmpl-6cd9ac5f --good", "turns rate chatcmpl-6cd9ac5f --bad --comment 'too long'")
)
def rate(
    turn: Annotated[str, typer.Argument(help="A reply's id.")],
    is_good: Annotated[bool | None, typer.Option("--good/--bad", help="The rating.")] = None,
    comment: Annotated[str | None, typer.Option(help="What to do otherwise.")] = None,
    correction: Annotated[str | None, typer.Option(help="The right reply.")] = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Rate, comment or correct a reply, as on the pages. The running gateway takes it; it is the admin key's word."""
    said = {
        "target": turn,
        "rating": None if is_good is None else 1.0 if is_good else -1.0,
        "comment": comment,
        "correction": correction,
    }
    body = {name: value for name, value in said.items() if value is not None}
    settings, journal, _ = existing(file, state, None)
    told = ask_gateway(settings, "/v1/feedback", body)
    with journal.read() as session:
        is_there = bool(filed(session, [turn]))
    when_counted = "it counts within seconds" if is_there else f"it counts once there is a reply {turn}"
    answer(f"recorded; {when_counted}", told, as_json)


def export(
    form: Annotated[Format, typer.Option("--format", help="Format of one of TRL's trainers.")] = Format.SFT,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="New file to write (default: the terminal).")
    ] = None,
    agent: EveryAgent = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's turns.")] = None,
    since: Since = None,
    until: Annotated[str | None, typer.Option(help="Only before this time.")] = None,
    min_reward: Annotated[
        float, typer.Option(min=0.001, max=2.0, help="Lowest reward of a reply that is exported as an example.")
    ] = MIN_REWARD,
    file: ConfigFile = None,
    state: StateDir = None,
) -> None:
    """Export turns as JSONL rows for other trainers, without the turns that are excluded from training."""
    _, journal, _ = existing(file, state, None)
    options = {"agent": agent, "tenant": tenant}
    found = rows(journal, form, since=moment(since), until=moment(until), min_reward=min_reward, **options)
    write_lines(lines(found), output)


def audit(
    agent: EveryAgent = None,
    actor: Annotated[str | None, typer.Option(help="Only actions of this actor: gate, watch, cli, a key's id.")] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this action: promote, refuse, pin, create-key, delete-feedback, expire, …")
    ] = None,
    since: Since = None,
    limit: Limit = 50,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List changes to what is served, to keys and to users' data, with who, when and why, newest first."""
    _, journal, _ = existing(file, state, None)
    with journal.read() as session:
        found = log.entries(session, agent=agent, actor=actor, action=action, since=moment(since), limit=limit)
        report = [row.model_dump() for row in found]
    print_json({"entries": report}) if as_json else out.print(entries(report, "audit log"))
