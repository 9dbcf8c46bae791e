"""`burnish why`, `export` and `audit`: what the journal has to say."""

from pathlib import Path
from typing import Annotated

import typer

from burnish.adapters.registry import audit as log
from burnish.cli import turns
from burnish.cli.common import AgentName, AsJson, ConfigFile, StateDir, load_settings, moment, out, print_json
from burnish.cli.version_tables import entries
from burnish.errors import ConfigError
from burnish.journal import Journal
from burnish.journal.training_rows import MIN_REWARD, Format, lines, rows

Since = Annotated[
    str | None, typer.Option(help="Only from then on: 2026-11-21, 2026-11-21T18:00, or 90m, 12h, 7d ago.")
]


def why(turn: str, file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False) -> None:
    """Tell a turn's story and fate: was it trained, in which version, or why not?"""
    turns.show(turn, file, state, as_json)


def export(
    form: Annotated[Format, typer.Option("--format", help="For which trainer of TRL.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="New file to write (default: the terminal).")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Only this agent's turns (default: all).")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's turns.")] = None,
    since: Since = None,
    until: Annotated[str | None, typer.Option(help="Only before then.")] = None,
    min_reward: Annotated[
        float, typer.Option(min=0.001, max=2.0, help="From which reward on a reply is an example.")
    ] = MIN_REWARD,
    file: ConfigFile = None,
    state: StateDir = None,
) -> None:
    """Write rows for other trainers as JSONL: sft, dpo, kto, rewards. What was kept out of training stays here."""
    journal = _open(file, state)
    if output is not None and output.exists():
        raise ConfigError(f"--output: {output} exists already; name a new file")
    options = {"agent": agent, "tenant": tenant}
    found = lines(rows(journal, form, since=moment(since), until=moment(until), min_reward=min_reward, **options))
    if output is None:
        for line in found:
            typer.echo(line, nl=False)
        return
    aside = output.with_name(f".{output.name}.tmp")
    n_rows = 0
    with aside.open("w", encoding="utf-8") as stream:
        for line in found:
            stream.write(line)
            n_rows += 1
    aside.rename(output)
    out.print(f"{n_rows} rows in {output}", highlight=False, soft_wrap=True)


def audit(
    agent: AgentName = None,
    actor: Annotated[str | None, typer.Option(help="Only what this one did: gate, watch, cli, a key's id.")] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this: promote, refuse, pin, import, remove, release, …")
    ] = None,
    since: Since = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="The newest so many.")] = 50,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List who changed what is served, when and why, newest first; of all agents unless one is named."""
    with _open(file, state).read() as session:
        found = log.entries(session, agent=agent, actor=actor, action=action, since=moment(since), limit=limit)
        told = [row.model_dump() for row in found]
    print_json({"entries": told}) if as_json else out.print(entries(told, "audit log"))


def _open(file: Path | None, state: Path | None) -> Journal:
    return Journal.open(load_settings(file, None, state).journal_url, migrate=False)
