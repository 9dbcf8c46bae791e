"""Operators' verbs on versions: the same for the command line and the admin API.

A version that the engines have loaded goes live at once: one transaction, then one small file. Any other is handed to the
swapper, which loads it first.
"""

from adapters import registry
from adapters.store import AdapterStore
from burnish.config import Settings
from burnish.errors import AdapterError, Conflict
from burnish.journal import Journal
from burnish.journal.jobs import enqueue_again
from burnish.journal.tables import LoadJob
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
            if row.state == VersionState.CANDIDATE:
                raise Conflict(f"{VersionName(agent, version)} is still on trial; wait for the gate's verdict")
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
            registry.version(session, agent, target)
    if target is None:
        raise Conflict(f"agent {agent!r} has no previous version to roll back to; name one with --to")
    if target == live:
        raise Conflict(f"{VersionName(agent, live)} is live already")
    return _make_live(settings, journal, agent, target, live, actor, reason or "rollback")


def _make_live(settings: Settings, journal: Journal, agent: str, target: int, live: int, actor: str, reason: str) -> str:
    name = VersionName(agent, target)
    try:
        table.make_live(journal, routes_file(settings), agent, target, expected=live, actor=actor, reason=reason)
        return f"{name} is live (was v{live})"
    except table.NotLoaded:
        pass
    try:
        AdapterStore(settings.adapters_dir).verify(agent, target)
    except AdapterError as error:
        raise AdapterError(f"{name} cannot be served: {error}") from error
    subject = f"{name}#promote"
    with journal.write() as session:
        payload = {"agent": agent, "version": target, "promote": True, "actor": actor, "reason": reason}
        enqueue_again(session, LoadJob, subject, payload)
    return f"{name} is being loaded; it goes live when every engine has it"
