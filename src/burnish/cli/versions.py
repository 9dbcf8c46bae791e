"""`burnish versions`, `promote` and `rollback`: list versions, manage their files, choose the live one."""

import random
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from burnish.adapters.registry import lifecycle, versions
from burnish.adapters.registry.agents import tenant_of
from burnish.adapters.registry.lineage import aliases_of, lineage
from burnish.adapters.verbs.answers import imported, pinned
from burnish.cli.common import (
    AgentName,
    AsJson,
    ConfigFile,
    Expected,
    Overrides,
    Reason,
    StateDir,
    Version,
    Yes,
    answer,
    ask_gateway,
    check_state,
    confirm,
    console,
    example,
    existing,
    load_settings,
    out,
    prepared,
    print_json,
)
from burnish.cli.tables import facts
from burnish.cli.tables import versions as tables
from burnish.errors import BurnishError
from burnish.journal import Journal
from burnish.journal.listing.pairs import WORDS, votes
from burnish.journal.listing.pairs import pairs as listed_pairs
from burnish.journal.tables import VersionRow

app = typer.Typer(
    help="List, show, compare, pin, import and export versions, remove old files.",
    epilog=example("versions list", "versions lineage 3"),
    no_args_is_help=True,
)


def describe(row: VersionRow) -> dict[str, Any]:
    """A version as the CLI and the admin API show it."""
    return row.model_dump(mode="json")


@app.command("list", epilog=example("versions list --json"))
def list_(agent: AgentName = None, file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False) -> None:
    """List an agent's versions, newest last."""
    _, journal, name = prepared(file, state, agent)
    with journal.read() as session:
        live = lifecycle.alias(session, name)
        previous = lifecycle.alias(session, name, lifecycle.PREVIOUS)
        pointed = aliases_of(session, name)
        rows = lifecycle.versions(session, name)
    if as_json:
        shown = [{**describe(row), "aliases": pointed.get(row.version, [])} for row in rows]
        print_json({"agent": name, "live": live, "previous": previous, "versions": shown})
    else:
        out.print(tables.listed(name, rows, pointed))


@app.command(epilog=example("versions show 3"))
def show(
    version: Version, agent: AgentName = None, file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False
) -> None:
    """Show one version: its evidence and its manifest."""
    from burnish.adapters.files.store import AdapterStore

    settings, journal, name = prepared(file, state, agent)
    with journal.read() as session:
        row = lifecycle.version(session, name, version)
    manifest = AdapterStore.of(settings).manifest(name, version) if row.removed_at is None else {}
    if as_json:
        print_json({**describe(row), "manifest": manifest})
        return
    report = describe(row)
    evidence = report.pop("evidence") or {}
    report |= {f"evidence: {key}": value for key, value in evidence.items()}
    report |= {f"manifest: {key}": value for key, value in manifest.items()}
    out.print(facts(f"{name}@v{version}", report))


@app.command("lineage", epilog=example("versions lineage 3"))
def lineage_(
    version: Version, agent: AgentName = None, file: ConfigFile = None, state: StateDir = None, as_json: AsJson = False
) -> None:
    """Show where a version comes from: ancestors, step, rows, evidence, and when it was live."""
    _, journal, name = prepared(file, state, agent)
    with journal.read() as session:
        report = lineage(session, name, version)
    print_json(report) if as_json else out.print(tables.story(report))


@app.command("pairs", epilog=example("versions pairs 3 --outcome lost"))
def pairs_(
    version: Version,
    outcome: Annotated[str | None, typer.Option(help="Only these: won, lost, tied or undecided.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Most pairs.")] = 20,
    agent: AgentName = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show prompts that a version answered otherwise than the version it was compared with. Lost ones come first."""
    if outcome is not None and outcome not in WORDS.values():
        raise typer.BadParameter(f"expected one of {', '.join(WORDS.values())}, got {outcome!r}")
    _, journal, name = prepared(file, state, agent)
    with journal.read() as session:
        lifecycle.version(session, name, version)
        found = listed_pairs(session, name, version, outcome=outcome, limit=limit)
        voted = votes(session, name, tenant_of(session, name), version)
    if as_json:
        print_json({"agent": name, "version": version, "pairs": found, "votes": voted})
        return
    for vote in voted:
        bounds = f"{vote['low']:.0%} to {vote['high']:.0%}"
        out.print(f"people preferred it to v{vote['baseline']} in {vote['share']:.0%} of {vote['n']} votes ({bounds})")
    for each in found:
        out.print(f"[b]{each['outcome']}[/b] {escape(each['turn'])}: {escape(each['prompt'])}", soft_wrap=True)
        for who, key in ((f"v{version}", "reply"), (f"v{each['baseline']}", "baseline_reply")):
            out.print(f"  {who}: {escape(each[key])}", soft_wrap=True)
    if not found:
        out.print(f"{name}@v{version} answered no compared prompt otherwise")


VOTES = {"1": "the first", "2": "the second", "t": "a tie", "n": "neither is good", "s": "skip"}


@app.command(epilog=example("versions compare 'What is fog?'", "versions compare 'What is fog?' --one 4 --other 0"))
def compare(
    prompt: Annotated[str, typer.Argument(help="What to ask both versions.")],
    one: Annotated[int | None, typer.Option(min=0, help="A version, 0 for the base (default: the live one).")] = None,
    other: Annotated[
        int | None, typer.Option(min=0, help="Another version (default: the one that was live before it).")
    ] = None,
    agent: AgentName = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Ask two versions the same, show both replies without their versions, and take a vote as on the page Compare.

    The running gateway answers, and records the vote as feedback. With --json nobody is asked for a vote.
    """
    from burnish.server.ui.pages.compare import MAX_TOKENS, feedback_of

    settings, journal, name = existing(file, state, agent)
    with journal.read() as session:
        chosen = [
            (lifecycle.alias(session, name) or 0) if one is None else one,
            (lifecycle.alias(session, name, lifecycle.PREVIOUS) or 0) if other is None else other,
        ]
    if chosen[0] == chosen[1]:
        raise BurnishError(f"expected two versions, got v{chosen[0]} twice; choose another one with --other")
    random.shuffle(chosen)
    replies = []
    for version in chosen:
        body = {"model": f"{name}@v{version}", "messages": [{"role": "user", "content": prompt}]}
        told = ask_gateway(settings, "/v1/chat/completions", {**body, "max_tokens": MAX_TOKENS}, seconds=600.0)
        text = told["choices"][0]["message"]["content"] or ""
        replies.append({"version": version, "turn": told["id"], "text": text})
    if as_json:
        print_json({"agent": name, "prompt": prompt, "replies": replies})
        return
    for number, each in enumerate(replies, 1):
        out.print(f"[b]{number}[/b]  {escape(each['text'])}", soft_wrap=True)
    keys = ", ".join(f"{key} {meaning}" for key, meaning in VOTES.items())
    try:
        said = ""
        while said not in VOTES:
            said = str(typer.prompt(f"Which is better? {keys}", err=True)).strip().lower()
    except typer.Abort:
        typer.echo(err=True)  # the question's line has no end yet
        raise BurnishError("nobody voted; use --json to see the replies without a vote") from None
    better, worse = replies[::-1] if said == "2" else replies
    both = {"t": "tie", "n": "neither"}.get(said, "")
    feedback = [] if said == "s" else feedback_of(better["turn"], worse["turn"], better["text"], both)
    if feedback:
        ask_gateway(settings, "/v1/feedback/batch", {"feedback": feedback})
    outcome = "recorded" if feedback else "nothing recorded"
    out.print(f"{outcome}; 1 was v{replies[0]['version']}, 2 was v{replies[1]['version']}", highlight=False)


@app.command(epilog=example("versions pin 3 --reason shipped"))
def pin(
    version: Version,
    agent: AgentName = None,
    reason: Reason = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Keep a version's files, whatever the retention settings are."""
    _pin(version, True, agent, reason, file, state, as_json)


@app.command(epilog=example("versions unpin 3"))
def unpin(
    version: Version,
    agent: AgentName = None,
    reason: Reason = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """End a pin, so that the retention settings apply to the version's files again."""
    _pin(version, False, agent, reason, file, state, as_json)


@app.command("import", epilog=example("versions import ./my-adapter"))
def import_(
    directory: Annotated[
        Path, typer.Argument(help="Directory made by PEFT's save_pretrained, or an export of Burnish.")
    ],
    agent: AgentName = None,
    any_base: Annotated[
        bool, typer.Option("--any-base", help="Do not check that the adapter belongs to the served base.")
    ] = False,
    file: ConfigFile = None,
    overrides: Overrides = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Import a PEFT adapter as a version. It becomes a candidate like any other."""
    from burnish.adapters.serving.prepare import prepare
    from burnish.learner.run.adopt import adopt

    settings = load_settings(file, overrides, state)
    check_state(settings)
    name = agent or settings.agent.name
    with console.status("reading the adapter and taking its probe"):
        number, read = adopt(settings, prepare(settings), name, directory, actor="cli", any_base=any_base)
    answer(imported(name, number), {"agent": name, "version": number, "ignored": list(read.ignored)}, as_json)
    if read.ignored and not as_json:
        out.print(f"not read: {', '.join(read.ignored)}", style="dim", highlight=False, soft_wrap=True)


@app.command("export", epilog=example("versions export 3 out/v3"))
def export_(
    version: Version,
    directory: Annotated[Path, typer.Argument(help="New directory to write.")],
    agent: AgentName = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Export a version as a directory that PEFT loads, with its manifest."""
    from burnish.adapters.files.export import export
    from burnish.adapters.files.store import AdapterStore

    settings, journal, name = prepared(file, state, agent)
    with journal.read() as session:
        lifecycle.version(session, name, version)
    written = export(AdapterStore.of(settings), name, version, directory)
    answer(
        f"{name}@v{version} is in {written}", {"agent": name, "version": version, "directory": str(written)}, as_json
    )


@app.command(epilog=example("versions gc --dry-run"))
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    agent: AgentName = None,
    yes: Yes = False,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove the files of versions that nothing needs, and what is in quarantine. Records stay."""
    from burnish.adapters.files.retention import FileRetention

    settings, journal, name = prepared(file, state, agent)
    file_retention = FileRetention(settings, journal)
    wanted = file_retention.remove(name, actor="cli", is_dry=True)
    unneeded = [*(f"v{n}" for n in sorted(wanted.plan.remove)), *wanted.quarantined]
    if not dry_run and unneeded:
        confirm(f"Remove the files of {', '.join(unneeded)}?", yes)
        wanted = file_retention.remove(name, actor="cli")
    print_json(wanted.as_dict()) if as_json else out.print(tables.removal(wanted.as_dict()))


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
    """Make a version live (0 is the frozen base). If the engines do not hold it, it is loaded first."""
    from burnish.adapters.verbs.releases import promote as make_live

    settings, journal, name = prepared(file, state, agent)
    confirm(f"Make {name}@v{version} live?", yes)
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
    """Make the previous version live again, or the version that --to names."""
    from burnish.adapters.verbs.releases import rollback as go_back

    settings, journal, name = prepared(file, state, agent)
    confirm(f"Roll {name} back?", yes)
    done = go_back(settings, journal, name, to=to, actor="cli", reason=reason, expected=expected)
    answer(done, {"agent": name, "live": _live(journal, name)}, as_json)


def _pin(
    version: int,
    is_pinned: bool,
    agent: str | None,
    reason: str | None,
    file: Path | None,
    state: Path | None,
    as_json: bool,
) -> None:
    _, journal, name = prepared(file, state, agent)
    with journal.write() as session:
        is_new = versions.set_pinned(session, name, version, is_pinned, actor="cli", reason=reason)
    tree = {"agent": name, "version": version, "is_pinned": is_pinned}
    answer(pinned(name, version, is_pinned, is_new), tree, as_json)


def _live(journal: Journal, agent: str) -> int | None:
    with journal.read() as session:
        return lifecycle.alias(session, agent)
