"""Every route says who may ask it, and the real application answers every kind of caller accordingly."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import Depends
from sqlmodel import Session
from starlette.applications import Starlette
from starlette.requests import Request as Asked
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks.security import requests
from benchmarks.security.matrix import Matrix, check
from benchmarks.security.requests import REQUESTS, Request
from benchmarks.security.world import World, asking, world
from burnish.adapters.registry import agents
from burnish.keys import Scope
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.access.matrix import askers, declared
from burnish.server.gateway.access.need import Reach
from burnish.server.gateway.admin.caller import Access


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as built:
        yield built


def checked(made: World) -> Matrix:
    return asyncio.run(check(made))


def test_every_cell_answers_as_declared(made: World) -> None:
    found = checked(made)
    assert found.undecided == []
    assert found.wrong == []
    assert found.n_cells == len(declared(made.behind)) * len(askers()) > 1000


def test_a_route_that_nobody_has_decided_about_is_found(made: World) -> None:
    @made.behind.get("/admin/secrets")
    def undeclared() -> dict[str, str]:
        return {}

    @made.behind.get("/somewhere", dependencies=[Depends(Access(made.settings, made.journal).anywhere(Scope.VIEWER))])
    def outside() -> dict[str, str]:
        return {}

    assert [route.name for route in declared(made.behind) if not route.needs] == [
        "GET /admin/secrets",
        "GET /somewhere",
    ]
    found = checked(made)
    assert [each.partition(":")[0] for each in found.undecided] == ["GET /admin/secrets", "GET /somewhere"]


def test_a_path_that_nobody_has_decided_about_is_not_served(made: World) -> None:
    def undeclared(request: Asked) -> JSONResponse:
        return JSONResponse({"secret": "yes"})

    made.behind.get("/somewhere")(lambda: {"secret": "yes"})
    made.behind.get("/admin/secrets")(lambda: {"secret": "yes"})
    made.behind.add_route("/admin/plain", undeclared)
    made.behind.mount("/admin/mounted", Starlette(routes=[Route("/inner", undeclared)]))
    secret = made.add_keys({"admin": {"scopes": [Scope.ADMIN]}})["admin"]

    async def ask() -> Any:
        async with asking(made) as client:
            headers = {"authorization": f"Bearer {secret}"}
            known = await client.get("/admin/agents", headers=headers)
            paths = ("/somewhere", "/admin/secrets", "/admin/plain", "/admin/mounted/inner")
            return known, [await client.get(path, headers=headers) for path in paths]

    known, answers = asyncio.run(ask())
    assert known.status_code == 200
    for answer in answers:
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_path"), answer.url


def test_a_route_without_a_request_in_the_benchmark_is_found(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    left = {name: request for name, request in REQUESTS.items() if name != "GET /admin/turns/{turn}"}
    monkeypatch.setattr("benchmarks.security.matrix.REQUESTS", left)
    assert [each.partition(":")[0] for each in checked(made).undecided] == ["GET /admin/turns/{turn}"]


def test_a_route_that_forgets_its_own_check_is_found(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    access = Access(made.settings, made.journal)

    @made.behind.get("/admin/agents/{agent}/leak", dependencies=[Depends(access.anywhere(Scope.VIEWER, Reach.AGENT))])
    def leak(agent: str) -> dict[str, str]:
        return {}

    monkeypatch.setitem(requests.REQUESTS, "GET /admin/agents/{agent}/leak", Request())
    wrong = checked(made).wrong
    assert wrong and all(each.startswith("GET /admin/agents/{agent}/leak") for each in wrong)
    assert {"got 200, expected [404]" in each for each in wrong} == {True}


def test_a_gateway_that_believes_every_name_is_found(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Caller, "user_of", lambda self, quoted: quoted)
    answered = [each for each in checked(made).wrong if "agent.u-" in each and each.endswith("@v0 answers")]
    assert any("scope inference" in each and "no user" in each for each in answered)
    assert any("another user" in each for each in answered)


def test_a_list_that_shows_too_much_is_found(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(session: Session, caller: object) -> Any:
        return agents.listed(session, "default")

    monkeypatch.setattr("burnish.server.gateway.admin.agents.visible", everything)
    wrong = checked(made).wrong
    assert wrong and all(each.startswith("GET /admin/agents by") and "is shown" in each for each in wrong)
