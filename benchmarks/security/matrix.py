"""The authorisation matrix against the real application: every route, asked by every kind of caller."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import select

from benchmarks.bars import Tell
from benchmarks.security.requests import AGENT, FOREIGN, OTHER_AGENT, OTHER_USER, REQUESTS, TENANT, USER, path_of
from benchmarks.security.world import World, asking, world
from burnish.adapters.registry.personal import name_of
from burnish.journal.tables import FeedbackRow
from burnish.keys import Scope
from burnish.server.gateway.access.matrix import (
    ALLOWED,
    Agents,
    Asker,
    Binding,
    Declared,
    Expected,
    KeyKind,
    askers,
    declared,
    expected,
)
from burnish.server.gateway.access.need import Reach

_USERS = {
    Binding.KEY: USER,
    Binding.TOKEN: USER,
    Binding.OTHER_KEY: OTHER_USER,
    Binding.OTHER_TOKEN: OTHER_USER,
}
_TOKENS = (Binding.TOKEN, Binding.OTHER_TOKEN)
_LIMITS = {
    Agents.ALL: (),
    Agents.THIS: (AGENT, "made-by-own", f"{FOREIGN}~made-by-foreign"),
    Agents.OTHER: (OTHER_AGENT,),
}


@dataclass
class Matrix:
    """`undecided` names routes without a declaration or without a request here, `wrong` says what came instead."""

    n_cells: int = 0
    undecided: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def measure(folder: Path, tell: Tell) -> dict[str, float]:
    """The benchmark's figures. Wrong cells are told."""
    with world(folder) as made:
        found = asyncio.run(check(made))
    for line in (*found.undecided, *found.wrong):
        tell(line)
    return {
        "matrix_cells": found.n_cells,
        "matrix_open": len(found.undecided) * len(askers()),
        "matrix_wrong": len(found.wrong),
    }


async def check(made: World) -> Matrix:
    """Ask in every cell and compare."""
    found = Matrix()
    everybody = askers()
    async with asking(made) as client:
        secrets = await _secrets(client, made, everybody)
        wanted: dict[str, tuple[str, Expected]] = {}
        for route in declared(made.behind):
            found.n_cells += len(everybody)
            if not route.needs or route.name not in REQUESTS:
                found.undecided.append(f"{route.name}: nobody has decided who may ask this")
                continue
            for asker in everybody:
                made.things = replace(made.things, number=made.things.number + 1)
                answer = await _ask(client, made, route, asker, secrets)
                cell, right = f"{route.name} by {_words(asker)}", expected(route, asker)
                if (fault := _fault(made, route, answer, right)) is not None:
                    found.wrong.append(f"{cell}: {fault}")
                elif route.reach is Reach.TARGET and answer.is_success:
                    wanted[await _feedback_id(client, made, answer)] = (cell, right)
    await asyncio.to_thread(made.ingest)
    found.wrong += _joined_wrong(made, wanted)
    return found


async def _secrets(client: httpx.AsyncClient, made: World, everybody: Sequence[Asker]) -> dict[Asker, str]:
    """The key or the token of every caller that has one."""
    secrets: dict[Asker, str] = made.add_keys({asker: _terms(asker) for asker in everybody if asker.scope})
    for asker in everybody:
        if asker.binding in _TOKENS:
            headers = {"authorization": f"Bearer {secrets[asker]}"}
            answer = await client.post("/v1/users/tokens", json={"user": _USERS[asker.binding]}, headers=headers)
            secrets[asker] = answer.json()["token"]
    return secrets


def _terms(asker: Asker) -> dict[str, Any]:
    """What the caller's key is made with. For a token, the key that makes the token."""
    tenant = TENANT if asker.is_own_tenant else FOREIGN
    terms: dict[str, Any] = {"scopes": [asker.scope], "tenant": tenant, "agents": _LIMITS[asker.agents]}
    if asker.binding in _TOKENS:
        return terms | {"scopes": [asker.scope, Scope.USERS]}
    return terms | {"user": _USERS.get(asker.binding)}


async def _ask(
    client: httpx.AsyncClient, made: World, route: Declared, asker: Asker, secrets: Mapping[Asker, str]
) -> httpx.Response:
    headers = {"x-burnish-user": USER}
    if asker in secrets:
        headers["authorization"] = f"Bearer {secrets[asker]}"
    elif asker.key is KeyKind.UNKNOWN:
        headers["authorization"] = "Bearer sk-burnish-unknown"
    elif asker.key is KeyKind.PROXIED:
        headers["x-forwarded-for"] = "203.0.113.9"
    request = REQUESTS[route.name]
    body = {} if request.body is None else {"json": request.body(made.things, asker)}
    return await client.request(route.method, path_of(route.name, made.things), headers=headers, **body)


def _fault(made: World, route: Declared, answer: httpx.Response, right: Expected) -> str | None:
    """What is wrong with the answer. None if nothing is."""
    request = REQUESTS[route.name]
    good = request.answers if right.status == ALLOWED else {right.status}
    if answer.status_code not in good:
        return f"got {answer.status_code}, expected {sorted(good)}: {answer.text[:200]}"
    if right.status == ALLOWED and request.mark is not None:
        is_shown = request.mark(made.things) in answer.text
        if is_shown != right.is_shown:
            return f"the thing is {'shown' if is_shown else 'missing'} in {answer.text[:200]}"
    if (version := answer.headers.get("x-burnish-version")) is not None:
        is_personal = version.startswith(f"{name_of(TENANT, AGENT, USER)}@")
        if is_personal != right.is_shown:
            return f"{version} answers"
    return None


async def _feedback_id(client: httpx.AsyncClient, made: World, answer: httpx.Response) -> str:
    """The id of the feedback that was accepted. A vote token is used first."""
    tree = answer.json()
    if "token" in tree:
        headers = {"authorization": f"Bearer {tree['token']}"}
        vote = {"target": made.things.turn, "rating": "up"}
        tree = (await client.post("/v1/feedback", json=vote, headers=headers)).json()
    return str(tree["feedback"][0]["id"] if "feedback" in tree else tree["id"])


def _joined_wrong(made: World, wanted: Mapping[str, tuple[str, Expected]]) -> list[str]:
    """The feedback that joined a target it must not join, or the other way round."""
    with made.journal.read() as session:
        rows = {row.feedback_id: row.interaction_id for row in session.scalars(select(FeedbackRow))}
    return [
        f"{cell}: the feedback {'joined' if rows.get(name) else 'did not join'} its target"
        for name, (cell, right) in wanted.items()
        if (rows.get(name) is not None) != right.is_shown
    ]


def _words(asker: Asker) -> str:
    if asker.key is not KeyKind.KNOWN:
        return f"a caller with the key: {asker.key}"
    tenant = "its own" if asker.is_own_tenant else "another"
    return f"a key with the scope {asker.scope} of {tenant} tenant for {asker.agents} agents, {asker.binding}"
