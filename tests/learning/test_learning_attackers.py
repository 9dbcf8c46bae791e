"""The drill's attackers: what they send, and that it is in their share."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.learning.client import Reply
from benchmarks.learning.drill import attackers, world
from benchmarks.learning.drill.attackers import Attack, Crowd, ToolUser
from benchmarks.learning.drill.poisoned import OPPOSITE
from burnish.sandbox.world import language, style_hints
from burnish.sandbox.world.language import HOUSE_STYLE


class Recorded:
    """A client that answers everything with one reply."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.rated: list[str | None] = []
        self.failures: list[str] = []
        self.n_requests = 0

    async def ask(self, model: str, messages: list[dict[str, Any]], **how: Any) -> Reply:
        await asyncio.sleep(0)  # the others have their turn
        self.asked.append({"messages": list(messages), **how})
        return Reply(f"r{len(self.asked)}", "a plain reply")

    async def rate(self, response_id: str, rating: str, comment: str | None, right: str | None = None) -> None:
        self.rated.append(comment)

    async def close(self) -> None:
        self.asked.append({"closed": True})


def crowd(monkeypatch: pytest.MonkeyPatch, attack: Attack, n: int = 64) -> tuple[Recorded, Recorded]:
    """What the run's client and the attackers' own one were asked."""
    own, theirs = Recorded(), Recorded()
    monkeypatch.setattr(attackers, "Client", lambda *_: theirs)
    monkeypatch.setattr(attackers, "_plain_key", lambda _: "k")
    monkeypatch.setattr(attackers, "gateway_url", lambda _: "http://127.0.0.1:1")
    running: Any = SimpleNamespace(client=own, agent="agent", settings=None)

    async def talk() -> None:
        made = Crowd(running, 1, 0.25, attack)
        await made.round(n)
        assert made.n_had == n
        await made.close()

    asyncio.run(talk())
    return own, theirs


def test_invented_names_are_new_in_each_session_and_share_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    own, theirs = crowd(monkeypatch, Attack.NAMES)
    assert len(own.asked) == 48 and theirs.asked.pop() == {"closed": True}
    assert len(theirs.asked) == 16
    names = [each["user"] for each in theirs.asked if len(each["messages"]) == 1]
    assert len(set(names)) == len(names) > 1 and not set(names) & set(world.NAMES)
    assert {each["user"] for each in own.asked} <= set(world.NAMES) - world.liars(1, 0.25)


def test_a_poisoned_tool_speaks_where_its_user_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    own, theirs = crowd(monkeypatch, Attack.TOOLS, 200)
    assert not theirs.asked
    lying = world.liars(1, 0.25)
    printed = [m for each in own.asked for m in each["messages"] if m["role"] == "tool"]
    assert printed and all("404" in m["content"] or "200 OK" in m["content"] for m in printed)
    for each in own.asked:
        roles = [m["role"] for m in each["messages"]]
        assert ("tool" in roles) == (each["user"] in lying and len(roles) > 1)
        if each["user"] in lying:
            for said in (m["content"] for m in each["messages"] if m["role"] == "user"):
                assert not any(style_hints.read(part) for part in said.split(". "))


def test_a_tool_asks_for_the_opposite_style() -> None:
    user = ToolUser(0, "user 1")
    user.opening()
    assert user.task is not None
    user.react(language.render(language.answer(user.task), HOUSE_STYLE))
    assert all(style_hints.CANONICAL[name, wanted] in user.printed for name, wanted in OPPOSITE.items())
    user.opening()
    user.react(language.render(language.answer(user.task), OPPOSITE))
    assert "200 OK" in user.printed and "Use" not in user.printed


def test_liars_are_the_drills_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own, theirs = crowd(monkeypatch, Attack.LIES)
    assert len(own.asked) == 64 and not theirs.asked
