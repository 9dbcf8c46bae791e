"""Operators' verbs on versions: the same for the command line and the admin API.

A version that the engines have loaded goes live at once: one transaction, then one small file. Any other is handed to the
swapper, which loads it first.
"""

from adapters import registry
from adapters.store import AdapterStore
from adapters.versions import check_servable
from burnish.config import Settings
from burnish.errors import AdapterError, Conflict
from burnish.journal import Journal
from burnish.journal.jobs import enqueue
from burnish.journal.tables import LoadJob, VersionRow
from burnish.records import VersionName, VersionState
from server import table
from server.prepare import routes_file


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
    """Make `version` live; says what happened or will happen.

    `expected` is the version that the caller believes to be live. Raises Conflict, NotFound or AdapterError.
    """
    with journal.read() as session:
        live = registry.alias(session, agent) or 0
        if version:
            row = registry.version(session, agent, version)
            _check(row)
    if expected is not None and expected != live:
        raise Conflict(f"expected v{expected} to be live, found v{live}; look again and repeat")
    if version == live:
        return f"{VersionName(agent, version)} is live already"
    return _make_live(settings, journal, agent, version, live, actor, reason or "promoted by hand")


def rollback(settings: Settings, journal: Journal, agent: str, *, to: int | None, actor: str, reason: str | None = None) -> str:
    """Make the previous version (or `to`) live again."""
    with journal.read() as session:
        live = registry.alias(session, agent) or 0
        target = registry.alias(session, agent, registry.PREVIOUS) if to is None else to
        if target:
            _check(registry.version(session, agent, target))
    if target is None:
        raise Conflict(f"agent {agent!r} has no previous version to roll back to; name one with --to")
    if target == live:
        raise Conflict(f"{VersionName(agent, live)} is live already")
    return _make_live(settings, journal, agent, target, live, actor, reason or "rollback")


def _check(row: VersionRow) -> None:
    """Conflict where no operator may make this version live."""
    if row.state == VersionState.CANDIDATE:
        raise Conflict(f"{VersionName(row.agent, row.version)} is still on trial; wait for the gate's verdict", code="on_trial")
    check_servable(row)


def _make_live(settings: Settings, journal: Journal, agent: str, target: int, live: int, actor: str, reason: str) -> str:
    name = VersionName(agent, target)
    try:
        table.make_live(journal, routes_file(settings), agent, target, expected=live, actor=actor, reason=reason)
        return f"{name} is live (was v{live})"
    except table.NotLoaded:
        pass
    try:
        AdapterStore.of(settings).verify(agent, target)
    except AdapterError as error:
        raise AdapterError(f"{name} cannot be served: {error}") from error
    subject = f"{name}#promote"
    with journal.write() as session:
        queued = session.get(LoadJob, subject)
        if queued is not None and queued.state in ("done", "dead"):
            session.delete(queued)
            session.flush()
        payload = {"agent": agent, "version": target, "promote": True, "actor": actor, "reason": reason}
        enqueue(session, LoadJob, subject, payload)
    return f"{name} is being loaded; it goes live when every engine has it"
