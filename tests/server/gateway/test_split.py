"""The canary's share of conversations: each conversation always gets the same version, in every dialect."""

from collections import Counter
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import pytest

from burnish import serving_table as table
from burnish.server.gateway.routing import Target, head_of, place, to_canary
from burnish.serving_table import AgentRoute, Routes
from tests.server.gateway.gateways import Running

ROUTE = AgentRoute("agent", live=2, previous=1, loaded=(1, 2, 3), canary=3, canary_share=0.2)
TABLE = Routes(agents={"agent": ROUTE, "plain": AgentRoute("plain", live=2, loaded=(2,))})
LIVE = Target("agent@v2", "agent@v2", "agent", 2)
BODIES: dict[str, Any] = {
    "/v1/chat/completions": lambda turns: {"messages": turns},
    "/v1/completions": lambda turns: {"prompt": turns[0]["content"]},
    "/v1/responses": lambda turns: {"input": turns},
    "/v1/messages": lambda turns: {"messages": turns, "max_tokens": 16},
}


def raw(messages: list[dict[str, Any]]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(messages))


def say(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def version_for(
    session_id: str | None = None, messages: Any = (), key_id: str = "key-1", routes: Routes = TABLE
) -> int:
    return to_canary(LIVE, routes, key_id, session_id, raw(list(messages))).version


def test_a_thousand_sessions_are_split_by_the_share() -> None:
    """Binomial(1,000, 0.2) lies within 140 and 260 except once in 10⁶ draws. These draws are the same each time."""
    chosen = Counter(version_for(f"session-{i}") for i in range(1000))
    assert set(chosen) == {2, 3}
    assert 140 <= chosen[3] <= 260
    by_head = Counter(version_for(None, [say(f"question {i}")]) for i in range(1000))
    assert 140 <= by_head[3] <= 260


def test_a_conversation_keeps_its_version_and_another_canary_draws_anew() -> None:
    head = [{"role": "system", "content": "be brief"}, say("hello")]
    later = [*head, {"role": "assistant", "content": "hi"}, say("and then?")]
    for i in range(50):
        head[1] = later[1] = say(f"hello {i}")
        assert version_for(None, head) == version_for(None, later)
        assert version_for(f"s-{i}", head) == version_for(f"s-{i}", [say("something else")])
    another = replace(TABLE, agents={"agent": replace(ROUTE, canary=4)})
    moved = [version_for(f"s-{i}") == 3 and version_for(f"s-{i}", routes=another) == 4 for i in range(1000)]
    assert 10 <= sum(moved) <= 80  # 0.04 of them by chance
    assert len({version_for("same", key_id=f"key-{i}") for i in range(50)}) == 2


def test_who_names_a_version_or_another_agent_gets_it() -> None:
    for target in (
        replace(LIVE, is_pinned=True),
        replace(LIVE, version=1, is_pinned=True),
        Target("base", "base", "base", 0, is_base=True),
        Target("plain@v2", "plain@v2", "plain", 2),
    ):
        for i in range(100):
            assert to_canary(target, TABLE, "key-1", f"s-{i}", raw([])) is target
    off = replace(TABLE, agents={"agent": replace(ROUTE, canary=None)})
    assert to_canary(LIVE, off, "key-1", "s", raw([])) is LIVE


def test_the_whole_table_round_trips(tmp_path: Any) -> None:
    table.write(tmp_path / "routes.json", TABLE)
    assert table.watch(tmp_path / "routes.json").current() == TABLE
    assert ROUTE.named == {1, 2, 3}


@pytest.mark.parametrize(
    ("messages", "head"),
    [
        ([], "\0"),
        ([{"role": "developer", "content": "be brief"}, say("hello")], "be brief\0hello"),
        ([say("hello"), {"role": "system", "content": "late"}], "\0hello"),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}, say("b")], "\0a"),
        ([{"role": 7}, {"content": "x"}, say("hello")], "\0hello"),
    ],
)
def test_the_head_of_a_conversation(messages: list[dict[str, Any]], head: str) -> None:
    assert head_of(raw(messages)) == head


def test_bad_surrogates_and_long_ids_have_a_place_too() -> None:
    assert 0 <= place(ROUTE, "k", "id:\ud800" + "x" * 9999) < 1


@pytest.mark.parametrize("path", BODIES)
def test_every_dialect_is_sticky_and_says_which_version_answered(gateway: Running, path: str) -> None:
    """With a session in the header and without, through the real gateway, the engine gets the same version."""
    gateway.engine.loaded["agent@v3"] = "/a/3"
    file = gateway.settings.run_dir / "routes.json"
    table.update(file, lambda t: replace(t, agents={**t.agents, "agent": replace(ROUTE, canary_share=0.5)}))
    seen: Counter[str] = Counter()
    with gateway.client() as client:
        for i in range(40):
            turns = [say(f"question {i}")]
            longer = [*turns, {"role": "assistant", "content": "well"}, say("go on")]
            if path == "/v1/completions":
                longer = turns
            first, second = (_ask(client, path, body, {}) for body in (turns, longer))
            named, again = (_ask(client, path, [say(text)], {"x-burnish-session": f"s-{i}"}) for text in ("a", "b"))
            pinned = _ask(client, path, turns, {}, model="agent@v2")
            assert (first, named, pinned) == (second, again, "agent@v2")
            seen[first] += 1
            seen[named] += 1
    assert set(seen) == {"agent@v2", "agent@v3"}
    assert 20 <= seen["agent@v3"] <= 60
    recorded = Counter(turn.version for turn in gateway.interactions)
    assert recorded[3] == 2 * seen["agent@v3"]
    assert {call["model"] for call in gateway.engine.requests if "model" in call} <= {"agent@v2", "agent@v3"}


def _ask(
    client: httpx.Client, path: str, turns: list[dict[str, Any]], headers: dict[str, str], model: str = "agent"
) -> str:
    response = client.post(path, json={"model": model, **BODIES[path](turns)}, headers=headers)
    assert response.status_code == 200, response.text
    return response.headers["x-burnish-version"]
