"""`burnish privacy`: export and forget what is stored of a user, and opt users out."""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from burnish.adapters.serving.prepare import refresh
from burnish.adapters.verbs import privacy
from burnish.cli.common import (
    AgentName,
    AsJson,
    ConfigFile,
    Overrides,
    Reason,
    StateDir,
    Yes,
    answer,
    confirm,
    console,
    counted,
    example,
    existing,
    load_settings,
    out,
    write_lines,
)
from burnish.config import Settings
from burnish.errors import BurnishError
from burnish.files import hold
from burnish.journal import Journal
from burnish.journal.privacy import erasure
from burnish.records import VersionState, Who

LOOK = 0.1
app = typer.Typer(
    help="Export and forget what is stored of a user, and opt users out of training or recording.",
    epilog=example("privacy export ann --output ann.jsonl", "privacy forget ann"),
    no_args_is_help=True,
)
User = Annotated[str, typer.Argument(help="The proved user, or with --key the id of a key.")]
OfUser = Annotated[str, typer.Argument(help="The user.")]
IsKey = Annotated[bool, typer.Option("--key", help="What a key said without a proved user, by the key's id.")]
Tenant = Annotated[str, typer.Option(help="Tenant that the user or the key belongs to.")]


@app.command(epilog=example("privacy export ann --output ann.jsonl", "privacy export sk-burnish-Ox_lUD --key"))
def export(
    user: User,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="New file to write (default: the terminal).")
    ] = None,
    key: IsKey = False,
    tenant: Tenant = "default",
    file: ConfigFile = None,
    state: StateDir = None,
) -> None:
    """Export everything that is stored of a user as JSON, one object a line.

    What is not in the journal yet comes first, then turns with what was made from them, feedback, sessions, keys,
    personal agents, an opt-out and entries of the audit log.
    """
    settings, journal, _ = existing(file, state, None)
    write_lines(privacy.export(settings, journal, _who(user, key, tenant)), output)


@app.command(epilog=example("privacy forget ann --yes", "privacy forget ann --dry-run --json"))
def forget(
    user: User,
    key: IsKey = False,
    tenant: Tenant = "default",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how much would go.")] = False,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the end of the erasure.")] = 60.0,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Then make live versions that learned from it again, without it.")
    ] = False,
    reason: Reason = None,
    yes: Yes = False,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Erase everything that is stored of a user up to now, for good, and list the versions that learned from it.

    Turns, texts, next states, judgements and hints, feedback, shadow replies and raw segments go. The user's keys are
    revoked, and the user's personal agents go back to the base. The ingester does it; if none runs, this command does.
    """
    settings, journal, _ = existing(file, state, None)
    who = _who(user, key, tenant)
    with journal.read() as session:
        privacy.check_known(session, who)
        n_turns, n_feedback = erasure.count(session, who)
    what = f"{counted(n_turns, 'turn')} and {counted(n_feedback, 'feedback record')}"
    what += f" of the {'key' if key else 'user'} {user!r}"
    if dry_run:
        return answer(f"would erase {what}", {"n_turns": n_turns, "n_feedback": n_feedback, "dry_run": True}, as_json)
    confirm(f"Erase {what} for good?", yes)
    with journal.write() as session:
        privacy.forget(session, who, actor="cli", reason=reason)
    found = _carried_out(settings, journal, who, wait)
    _show(found, as_json)
    if retrain and found["state"] != "done":
        raise BurnishError(
            f"nothing was retrained: the erasure has not ended within {wait:g} s. When `burnish privacy status "
            f"{user}` says that it is done, run `burnish privacy retrain --agent AGENT`"
        )
    if retrain:
        listed = [each for each in (*found["versions"], *found["descended"]) if each["state"] == VersionState.LIVE]
        for agent in sorted({each["version"].rpartition("@v")[0] for each in listed}):
            _retrain(settings, journal, agent, as_json)


@app.command(epilog=example("privacy retrain --agent support"))
def retrain(
    agent: AgentName = None,
    file: ConfigFile = None,
    overrides: Overrides = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Make the live version again without turns that were erased or kept out, and put it up for the gate's trial.

    The steps since the last version that used none of them are taken again on the rows that are left. It loads the
    base model, and takes about as long as those steps took.
    """
    settings = load_settings(file, overrides, state)
    journal = Journal.open(settings.journal_url, migrate=False)
    _retrain(settings, journal, agent or settings.agent.name, as_json)


@app.command(epilog=example("privacy status ann", "privacy status ann --json"))
def status(
    user: User,
    key: IsKey = False,
    tenant: Tenant = "default",
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show how far the erasure of a user is, and the versions that learned from what it erased."""
    _, journal, _ = existing(file, state, None)
    with journal.read() as session:
        found = privacy.standing(session, _who(user, key, tenant))
    _show(found, as_json)


@app.command("opt-out", epilog=example("privacy opt-out ann", "privacy opt-out ann --recording"))
def opt_out(
    user: OfUser,
    recording: Annotated[
        bool, typer.Option("--recording", help="Do not record the user's turns either (default: only do not train).")
    ] = False,
    tenant: Tenant = "default",
    reason: Reason = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Keep a user's turns out of training from now on, and those that no step has used yet."""
    settings, journal, _ = existing(file, state, None)
    with journal.write() as session:
        who = _who(user, False, tenant)
        n_turns = privacy.opt_out(session, who, may_record=not recording, actor="cli", reason=reason)
    refresh(settings, journal)
    kept = "are not recorded and not trained on" if recording else "are not trained on"
    status = f"turns of {user!r} {kept} from now on; {counted(n_turns, 'recorded turn')} left training"
    answer(status, {"user": user, "may_record": not recording, "n_turns": n_turns}, as_json)


@app.command("opt-in", epilog=example("privacy opt-in ann"))
def opt_in(
    user: OfUser,
    tenant: Tenant = "default",
    reason: Reason = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """End a user's opt-out: turns are recorded and may train again. Earlier ones stay out."""
    settings, journal, _ = existing(file, state, None)
    with journal.write() as session:
        was_out = privacy.opt_in(session, _who(user, False, tenant), actor="cli", reason=reason)
    refresh(settings, journal)
    status = f"turns of {user!r} are recorded and may train" if was_out else f"{user!r} had not opted out"
    answer(status, {"user": user, "had_opted_out": was_out}, as_json)


def _who(user: str, is_key: bool, tenant: str) -> Who:
    return (tenant, "key" if is_key else "user", user.rstrip("…") if is_key else user)


def _carried_out(settings: Settings, journal: Journal, who: Who, seconds: float) -> dict[str, Any]:
    """The erasure when it is done, or as it is after `seconds`. It is done here if no ingester runs."""
    from burnish.server.ingest.ingester import LOCK, Ingester

    until = time.monotonic() + seconds
    lock = -1
    ingester = Ingester.of(settings, journal)
    try:
        while True:
            with suppress(BlockingIOError):  # raised while the server's ingester is at work
                lock = hold(settings.run_dir / LOCK) if lock < 0 else lock
            if lock >= 0:
                ingester.run_once()
            with journal.read() as session:
                found = privacy.standing(session, who)
            if found["state"] == "done" or time.monotonic() > until:
                return found
            time.sleep(LOOK)
    finally:
        if lock >= 0:
            os.close(lock)


def _retrain(settings: Settings, journal: Journal, agent: str, as_json: bool) -> None:
    from burnish.learner.run.retrain import retrain as make_again

    with console.status(f"making {agent} again without erased turns"):
        made = make_again(settings, journal, agent, actor="cli")
    if made.version is not None:
        status = (
            f"{made.version} waits for the gate's trial: made from {made.start} in {counted(made.n_steps, 'step')} on "
            f"{counted(made.n_rows, 'row')}, without {counted(made.n_gone, 'erased row')}"
        )
    elif made.live == made.start:
        status = f"{made.live} used no erased turn, as far as its versions say; nothing is made"
    else:
        number = made.start.rpartition("@v")[2]
        status = f"nothing is left of the steps behind {made.start}; `burnish rollback --to {number}` goes back to it"
    answer(status, made.to_json(), as_json)


def _show(found: dict[str, Any], as_json: bool) -> None:
    if found["state"] != "done":
        waits = f"; it waits: {found['waits_for']}" if found["waits_for"] else ""
        return answer(f"the erasure is under way{waits}; `burnish privacy status` shows its end", found, as_json)
    answer(
        f"erased {counted(found['n_turns'], 'turn')}, {counted(found['n_feedback'], 'feedback record')}, "
        f"{counted(found['n_texts'], 'text')} and {counted(found['n_segments'], 'segment')}; "
        f"revoked {counted(found['n_keys'], 'key')}",
        found,
        as_json,
    )
    if as_json:
        return
    for title, names in (("learned from them", found["versions"]), ("come from those", found["descended"])):
        listed = ", ".join(f"{each['version']} ({each['state']})" for each in names)
        out.print(f"versions that {title}: {listed or 'none'}", highlight=False, soft_wrap=True)
    if found["n_unreadable"]:
        unread = counted(found["n_unreadable"], "record")
        console.print(f"{unread} that nobody could read went too", highlight=False)
