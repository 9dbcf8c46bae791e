"""The serving table follows the registry. A change of an alias is written here right after; an operator's right before.

All changes happen under the table's lock. Making a loaded version live and taking a drained one off the table exclude
each other. So a version with an alias is never taken off, and one that is off must be loaded before it goes live.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sqlmodel import Session

from burnish import serving_table
from burnish.adapters.registry import canaries, lifecycle
from burnish.errors import Conflict, NotFound
from burnish.journal import Journal
from burnish.journal.tables import AgentRow


class NotLoaded(Exception):
    """The version must be loaded before it can be live."""


def sync(journal: Journal, file: Path, agent: str, *, also_loaded: int | None = None) -> serving_table.Routes:
    """Write the registry's aliases of `agent`. `also_loaded` is a version that all engines have now.

    A personal agent that is not on the table stays off it unless its live version is loaded. Its parent answers
    meanwhile.
    """

    def change(table: serving_table.Routes) -> serving_table.Routes:
        route = table.agents.get(agent) or _new(journal, agent)
        loaded = {*route.loaded, also_loaded} if also_loaded else set(route.loaded)
        after = _put(journal, table, replace(route, loaded=tuple(sorted(loaded))))
        is_asleep = agent not in table.agents and route.parent is not None
        return table if is_asleep and after.agents[agent].live not in {0, *loaded} else after

    return serving_table.update(file, change)


def take_off(journal: Journal, file: Path, agent: str, version: int) -> serving_table.Routes | None:
    """Take `version` off the table. Returns None and does nothing if an alias names it."""
    is_off = False

    def change(table: serving_table.Routes) -> serving_table.Routes:
        nonlocal is_off
        route = _put(journal, table, table.agents[agent]).agents[agent]
        is_off = version not in route.named
        loaded = tuple(n for n in route.loaded if n != version) if is_off else route.loaded
        return replace(table, agents={**table.agents, agent: replace(route, loaded=loaded)})

    table = serving_table.update(file, change)
    return table if is_off else None


def make_live(
    journal: Journal, file: Path, agent: str, version: int, *, expected: int, actor: str, reason: str
) -> serving_table.Routes:
    """Promote a loaded version (or the base): first on the table, then in the registry.

    So an operator's rollback waits for no other writer of the journal. If the registry refuses, the table is put back.
    If the process dies in between, the next `sync` or start does that, and the operator got no answer. Raises
    NotLoaded, NotFound or Conflict.
    """
    with serving_table.held(file) as held:
        route = _loaded(journal, held.table, agent, version)
        with journal.read() as session:
            lifecycle.check_promotion(session, agent, version, expected=expected)

        def act(session: Session) -> None:
            lifecycle.promote(session, agent, version, expected=expected, actor=actor, reason=reason)

        return _show_first(journal, held, route, version, act)


def go_back(
    journal: Journal, file: Path, agent: str, *, expected: int | None, actor: str, reason: str
) -> tuple[int, int] | None:
    """`make_live` for the previous version as the table knows it, without SQL before the gateways follow.

    Returns (new live, old live). Returns None and changes nothing if the table knows no loaded previous version, or if
    the registry disagrees; then the registry's error applies. Raises Conflict if another version than `expected`, or
    than the one at the time of the call, is live: of two rollbacks at once, one succeeds.
    """
    seen = serving_table.watch(file).current().agents.get(agent)
    if seen is None:
        return None
    with serving_table.held(file) as held:
        route = held.table.agents.get(agent)
        if route is None:
            return None
        wanted = seen.live if expected is None else expected
        if route.live != wanted:
            raise Conflict(f"expected v{wanted} to be live, found v{route.live}; look again and repeat")
        if route.previous in (None, route.live) or (route.previous and route.previous not in route.loaded):
            return None
        target, live = route.previous or 0, route.live

        def act(session: Session) -> None:
            if lifecycle.alias(session, agent, lifecycle.PREVIOUS) != target:
                raise Conflict("the registry has another version before")
            lifecycle.check_promotion(session, agent, target, expected=live)
            lifecycle.promote(session, agent, target, expected=live, actor=actor, reason=reason)

        try:
            _show_first(journal, held, route, target, act)
        except (Conflict, NotFound):
            return None
    return target, live


def _show_first(
    journal: Journal,
    held: serving_table.LockedTable,
    route: serving_table.AgentRoute,
    version: int,
    act: Callable[[Session], object],
) -> serving_table.Routes:
    """Put `version` on the table, then let `act` record it. Afterwards the table matches the registry in any case."""
    held.put(_with(held.table, replace(route, live=version, previous=route.live, canary=None, canary_share=0.0)))
    try:
        with journal.write() as session:
            act(session)
    finally:
        after = held.put(_put(journal, held.table, route))
    return after


def move(
    journal: Journal, file: Path, agent: str, version: int, act: Callable[[Session], object]
) -> serving_table.Routes:
    """Let `act` change the aliases of `agent`, one of them to `version`, then the table. Raises NotLoaded or
    NotFound."""

    def change(table: serving_table.Routes) -> serving_table.Routes:
        route = _loaded(journal, table, agent, version)
        with journal.write() as session:
            act(session)
        return _put(journal, table, route)

    return serving_table.update(file, change)


def aliases(session: Session, route: serving_table.AgentRoute) -> serving_table.AgentRoute:
    """`route` with the versions of the registry's aliases and of the running canary."""
    live = lifecycle.alias(session, route.name) or 0
    previous = lifecycle.alias(session, route.name, lifecycle.PREVIOUS)
    canary, share = canaries.split_of(session, route.name) or (None, 0.0)
    return replace(route, live=live, previous=previous, canary=canary, canary_share=share)


def leave(file: Path, agent: str) -> tuple[serving_table.AgentRoute, int] | None:
    """Take a whole agent off the table. Returns its old route and the new generation, None if it was not there."""
    gone: serving_table.AgentRoute | None = None

    def change(table: serving_table.Routes) -> serving_table.Routes:
        nonlocal gone
        gone = table.agents.get(agent)
        return replace(table, agents={name: route for name, route in table.agents.items() if name != agent})

    after = serving_table.update(file, change)
    return (gone, after.generation) if gone is not None else None


def _loaded(journal: Journal, table: serving_table.Routes, agent: str, version: int) -> serving_table.AgentRoute:
    """The route of `agent`. Raises NotLoaded if an engine lacks `version`, NotFound if there is no such agent."""
    route = table.agents.get(agent) or _new(journal, agent)
    if version and version not in route.loaded:
        raise NotLoaded
    return route


def _new(journal: Journal, agent: str) -> serving_table.AgentRoute:
    """The route of an agent that is not on the table. Raises NotFound if there is no such agent."""
    with journal.read() as session:
        row = session.get(AgentRow, agent)
    if row is None:
        raise NotFound(f"no agent {agent!r}", code="agent_not_found")
    return serving_table.AgentRoute(agent, row.tenant, parent=row.parent, user=row.user)


def _put(journal: Journal, table: serving_table.Routes, route: serving_table.AgentRoute) -> serving_table.Routes:
    with journal.read() as session:
        return _with(table, aliases(session, route))


def _with(table: serving_table.Routes, route: serving_table.AgentRoute) -> serving_table.Routes:
    return replace(table, agents={**table.agents, route.name: route})
