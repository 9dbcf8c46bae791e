"""An operator's verbs on versions.

A version that the engines have loaded goes live at once: one transaction, then one small file. Any other version is
handed to the swapper, which loads it first.
"""

from sqlalchemy import select
from sqlmodel import Session, col

from burnish.adapters.files.contents import WEIGHTS
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import lifecycle
from burnish.adapters.registry.versions import check_servable
from burnish.adapters.serving import publish
from burnish.adapters.serving.prepare import routes_file
from burnish.config import Settings
from burnish.errors import AdapterError, Conflict
from burnish.journal import Journal
from burnish.journal.jobs import enqueue_again
from burnish.journal.tables import LoadJob, VersionRow
from burnish.records import VersionName, VersionState


def promote(
    settings: Settings,
    journal: Journal,
    agent: str,
    version: int,
    *,
    actor: str,
    reason: str | None = None,
    expected: int | None = None,
) -> str:
    """Make `version` live. Returns what happened or will happen.

    `expected` is the version that the caller believes to be live. Raises Conflict, NotFound or AdapterError.
    """
    with journal.read() as session:
        live = lifecycle.alias(session, agent) or 0
        if version:
            _check(row := lifecycle.version(session, agent, version))
    if expected is not None and expected != live:
        raise Conflict(f"expected v{expected} to be live, found v{live}; look again and repeat")
    if version == live:
        return f"{VersionName(agent, version)} is live already"
    if version:
        _verify(settings, row)
    return _make_live(settings, journal, agent, version, live, actor, reason or "promoted by hand")


def rollback(
    settings: Settings,
    journal: Journal,
    agent: str,
    *,
    to: int | None,
    actor: str,
    reason: str | None = None,
    expected: int | None = None,
) -> str:
    """Make the previous version (or `to`) live again. `expected` works as in `promote`.

    A loaded version's files are not checked, because a rollback must not wait for a disk.
    """
    why = reason or "rollback"
    if to is None:
        gone = publish.go_back(journal, routes_file(settings), agent, expected=expected, actor=actor, reason=why)
        if gone is not None:
            return f"{VersionName(agent, gone[0])} is live (was v{gone[1]})"
    with journal.read() as session:
        live = lifecycle.alias(session, agent) or 0
        target = lifecycle.alias(session, agent, lifecycle.PREVIOUS) if to is None else to
        if target:
            _check(lifecycle.version(session, agent, target))
    if expected is not None and expected != live:
        raise Conflict(f"expected v{expected} to be live, found v{live}; look again and repeat")
    if target is None:
        raise Conflict(f"agent {agent!r} has no previous version to roll back to; name one with --to")
    if target == live:
        raise Conflict(f"{VersionName(agent, live)} is live already")
    return _make_live(settings, journal, agent, target, live, actor, why)


def _check(row: VersionRow) -> None:
    """Raises Conflict if no operator may make this version live."""
    if row.state == VersionState.CANDIDATE:
        raise Conflict(
            f"{VersionName(row.agent, row.version)} is still on trial; wait for the gate's verdict", code="on_trial"
        )
    check_servable(row)


def _verify(settings: Settings, row: VersionRow) -> None:
    """Raises AdapterError if the version's files have changed or are for another base."""
    name = VersionName(row.agent, row.version)
    try:
        manifest = AdapterStore.of(settings).verify(row.agent, row.version)
        found = str(manifest["files"][WEIGHTS])
        if len(row.digest) == len(found) and row.digest != found:
            raise AdapterError(f"its weights are {found[:12]}…, the registry knows them as {row.digest[:12]}…")
    except AdapterError as error:
        raise AdapterError(f"{name} cannot be served: {error}") from error


def _being_loaded(session: Session, agent: str) -> str | None:
    """The load job of a version of this agent that an operator wants live and that is not live yet."""
    waiting = session.scalars(
        select(LoadJob).where(col(LoadJob.state).in_(("queued", "leased")), col(LoadJob.subject).like("%#promote"))
    )
    return next((row.subject for row in waiting if row.payload.get("agent") == agent), None)


def _make_live(
    settings: Settings, journal: Journal, agent: str, target: int, live: int, actor: str, reason: str
) -> str:
    name = VersionName(agent, target)
    try:
        publish.make_live(journal, routes_file(settings), agent, target, expected=live, actor=actor, reason=reason)
        return f"{name} is live (was v{live})"
    except publish.NotLoaded:
        pass
    with journal.read() as session:
        _verify(settings, lifecycle.version(session, agent, target))
    subject = f"{name}#promote"
    with journal.write() as session:
        if (other := _being_loaded(session, agent)) is not None and other != subject:
            raise Conflict(f"{other.removesuffix('#promote')} is being loaded to go live; wait for it, then repeat")
        payload = {
            "agent": agent,
            "version": target,
            "promote": True,
            "actor": actor,
            "reason": reason,
            "expected": live,
        }
        enqueue_again(session, LoadJob, subject, payload)
    return f"{name} is being loaded; it goes live when every engine has it"
