"""The pages against the real gateway with a real journal: what the fake API promises is what the routes answer."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from registered import Registered, registered

from burnish.journal.tables import JudgeCostRow, JudgementRow, SampleRow, StepRow
from burnish.records import NextStateKind
from burnish.server.ui.admin_api import make_http
from burnish.server.ui.site import Site
from tests.factories import interaction, user
from tests.server.ui.fake_api import ANSWERS, ORIGIN
from tests.server.ui.test_ui_pages import SHOWN
from tests.server.ui.visitors import post
from tests.turns import add_feedback, add_next_state, add_turn


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registered]:
    """`agent` with a session of two turns, which say what the fake's turns say."""
    with registered(tmp_path_factory.mktemp("real")) as made:
        turn = {"version": 2, "user": "ann", "interaction_id": "chatcmpl-1", "started_at": 999.5, "ended_at": 1000.0}
        first = interaction([user("Where is <order> 7?")], "On its way.", **turn)
        add_turn(made.journal, first, session_id="s-1", spent_step=1)
        second = interaction([user("And now?")], interaction_id="chatcmpl-2", version=2, ended_at=1001.0)
        add_turn(made.journal, second, session_id="s-1", parent_id="chatcmpl-1")
        add_next_state(made.journal, "chatcmpl-1", NextStateKind.USER_REPLY, user("And now?"))
        add_feedback(made.journal, "chatcmpl-1", -1.0, comment="too long")
        step = {"outcome": "published", "metrics": {"loss": 0.3}, "started_at": 900.0, "ended_at": 910.0}
        monitors = {"kl": {"level": "green", "value": 0.1, "why": ""}}
        verdict: dict[str, Any] = {"origin": "next_state", "confidence": 0.3, "n_failed": 0, "created_at": 1.0}
        day = time.strftime("%Y-%m-%d", time.gmtime())
        counts = {"n_requests": 1, "n_votes": 3, "n_prompt_tokens": 9, "n_answer_tokens": 3, "seconds": 1.5}
        with made.journal.write() as session:
            session.add(JudgeCostRow(day=day, agent="agent", model="base", purpose="turns", **counts))
            session.add(JudgeCostRow(day=day, agent="other", model="base", purpose="turns", **counts))
            session.add(StepRow(agent="agent", version=3, parent=2, level="green", monitors=monitors, **step))
            session.flush()
            session.add(SampleRow(step_id=1, interaction_id="chatcmpl-1", reward=-1.0, record_ids=["f-1"]))
            for name in ("chatcmpl-1", "chatcmpl-2"):
                held = {"judgement_id": f"j-{name}", "judge_id": "base/1", "votes": [1, None]}
                session.add(JudgementRow(interaction_id=name, **held, **verdict))
        yield made


FREE_FORM = frozenset(
    {"aliases", "by_version", "comparisons", "counts", "dropped", "evidence", "figures", "manifest", "metrics"}
    | {"monitors", "settings", "answer", "reply", "messages", "said"}
)
"""Parts of an answer whose names are not fixed."""


def missing(fake: Any, real: Any, place: str = "") -> list[str]:
    """The names in the fake's answer that the real one lacks. Empty lists and None on either side promise nothing."""
    if isinstance(fake, list) and isinstance(real, list):
        return missing(fake[0], real[0], f"{place}[]") if fake and real else []
    if not isinstance(fake, dict) or not isinstance(real, dict):
        return []
    found = [f"{place}.{name}" for name in fake if name not in real]
    known = [name for name in fake if name in real and name not in FREE_FORM]
    return found + [each for name in known for each in missing(fake[name], real[name], f"{place}.{name}")]


@pytest.mark.parametrize("path", sorted(ANSWERS))
def test_the_real_routes_answer_all_that_the_fake_does(real: Registered, path: str) -> None:
    if path == "/admin/privacy/status":
        assert real.get("/privacy/status?user=ann", "operator").status_code == 404  # nobody has asked for an erasure
        return
    answer = real.get(path.removeprefix("/admin"), "admin")
    assert answer.status_code == 200, answer.text
    assert missing(ANSWERS[path], answer.json()) == []


def test_a_key_sees_what_judges_cost_for_its_own_agent(real: Registered) -> None:
    (row,) = real.get("/agents/agent/judges?days=1", "viewer").json()["costs"]
    assert (row["n_votes"], row["n_prompt_tokens"], row["seconds"]) == (3, 9, 1.5)


def test_a_name_that_the_real_route_lacks_is_found() -> None:
    assert missing({"a": [{"b": 1, "c": 2}], "metrics": {"x": 1}}, {"a": [{"b": 1}], "metrics": {}}) == [".a[].c"]


@asynccontextmanager
async def looking(real: Registered) -> AsyncIterator[httpx.AsyncClient]:
    """An administrator in front of the pages of the real gateway."""
    async with make_http(real.running.url) as http:
        app = Site(http).app()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN) as client:
            assert (await post(client, "/login", key=real.running.secrets["admin"])).status_code == 303
            yield client


async def test_every_page_comes_from_the_real_gateway(real: Registered) -> None:
    async with looking(real) as client:
        for path in SHOWN:
            answer = await client.get(path)
            assert answer.status_code == 200, (path, answer.text[-500:])
        made = await post(client, "/a/agent/release", verb="pin", version="3", reason="kept")
        assert made.status_code == 303
        assert "is pinned" in (await client.get("/a/agent/versions/3")).text
    assert real.audit()[-1][1:] == ("pin", "agent@v3")


async def test_a_key_is_made_shown_once_and_revoked(real: Registered) -> None:
    async with looking(real) as client:
        made = await post(client, "/keys", name="laptop", scopes="inference feedback", user="ann")
        secret = made.text.partition('mono sentence">')[2].partition("<")[0]
        assert models(real, secret) == 200
        assert secret not in (await client.get("/keys")).text
        await post(client, "/keys", revoke=secret[: len("sk-burnish-") + 6])
        assert models(real, secret) == 401


async def test_all_keys_of_a_user_are_revoked_over_http(real: Registered) -> None:
    async with looking(real) as client:
        made = await post(client, "/keys", name="laptop", scopes="inference feedback", user="ann")
        secret = made.text.partition('mono sentence">')[2].partition("<")[0]
    answer = real.post("/keys/revoke", {"user": "ann", "reason": "lost"}, "admin")
    assert answer.status_code == 200 and answer.json()["n_keys"] == 1
    assert models(real, secret) == 401
    for wrong in ({}, {"user": "ann", "key_id": "x"}):
        assert real.post("/keys/revoke", wrong, "admin").status_code == 400


def models(real: Registered, key: str) -> int:
    """The status of a list of models."""
    with real.running.client(key) as client:
        return client.get("/v1/models").status_code
