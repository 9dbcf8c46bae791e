"""News: each change of a version and each alarm is told once, also over a restart."""

from pathlib import Path
from typing import Any

import pytest

from burnish.adapters.registry import agents, lifecycle
from burnish.adapters.registry.learning_state import LearningState
from burnish.adapters.serving.prepare import prepare
from burnish.config import Alerts as AlertSettings
from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.tables import JudgeCheckRow
from burnish.server.rollout.notices import news
from burnish.server.rollout.notices.news import News


class Told:
    """Takes the notices."""

    def __init__(self) -> None:
        self.notices: list[tuple[str, dict[str, Any]]] = []
        self.ids: list[str | None] = []

    def send(self, event: str, *, notice_id: str | None = None, **facts: Any) -> None:
        self.notices.append((event, facts))
        self.ids.append(notice_id)

    def resume(self) -> None: ...


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(news, "learning_state", lambda *_: LearningState("fine"))
    return Settings(state_dir=tmp_path, alerts=AlertSettings(webhook="https://alerts.example/burnish"))


@pytest.fixture
def journal(settings: Settings) -> Any:
    opened = prepare(settings)
    yield opened
    opened.close()


def news_of(journal: Journal, settings: Settings, told: Told) -> News:
    return News(journal, settings, lambda _: settings, told)  # type: ignore[arg-type]


def announce(journal: Journal, number: int, agent: str = "agent") -> None:
    with journal.write() as session:
        lifecycle.announce(session, agent, number, parent=0, step_id=None, digest=f"d{number}")


def promote(journal: Journal, number: int, expected: int, actor: str = "gate", agent: str = "agent") -> None:
    with journal.write() as session:
        lifecycle.promote(session, agent, number, expected=expected, actor=actor, reason="passed")


def refuse(journal: Journal, number: int, actor: str) -> None:
    with journal.write() as session:
        lifecycle.refuse(session, "agent", number, reason="unlearned 9 of 64", evidence={}, actor=actor)


async def test_versions_are_told_once_over_a_restart(journal: Journal, settings: Settings) -> None:
    announce(journal, 1)
    promote(journal, 1, 0)  # before the first look, so nobody is told
    told = Told()
    first = news_of(journal, settings, told)
    await first.run_once()
    assert told.notices == []
    announce(journal, 2)
    promote(journal, 2, 1)
    announce(journal, 3)
    refuse(journal, 3, "gate")
    await first.run_once()
    again = news_of(journal, settings, told)
    promote(journal, 1, 2, actor="cli")
    await again.run_once()
    await again.run_once()
    common = {"agent": "agent", "reason": "passed"}
    assert told.notices == [
        ("version live", common | {"by": "gate", "from": 1, "to": 2}),
        ("version refused", {"agent": "agent", "by": "gate", "reason": "unlearned 9 of 64", "version": 3}),
        ("rolled back", common | {"by": "cli", "from": 2, "to": 1}),
    ]
    assert len(set(told.ids)) == 3 and all(str(each).startswith("audit-") for each in told.ids)


async def test_the_observers_own_and_personal_agents_are_not_told(journal: Journal, settings: Settings) -> None:
    told = Told()
    seen = news_of(journal, settings, told)
    await seen.run_once()
    announce(journal, 1)
    refuse(journal, 1, "canary")
    announce(journal, 2)
    promote(journal, 2, 0, actor="canary")
    with journal.write() as session:
        agents.ensure_agent(session, "agent.u-0123456789ab")
        session.flush()
        agents.find(session, "agent.u-0123456789ab").parent = "agent"
    announce(journal, 1, "agent.u-0123456789ab")
    promote(journal, 1, 0, agent="agent.u-0123456789ab")
    await seen.run_once()
    assert [(event, facts["by"]) for event, facts in told.notices] == [("version live", "canary")]


async def test_an_alarm_is_told_when_it_begins(
    journal: Journal, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(news, "ALARM_SECONDS", 0.0)
    told = Told()
    seen = news_of(journal, settings, told)
    starved = LearningState("waits for 4 more rated replies", is_alarm=True)
    monkeypatch.setattr(news, "learning_state", lambda *_: starved)
    monkeypatch.setattr("burnish.files.LEAST_FREE", 1e18)
    with journal.write() as session:
        row = JudgeCheckRow(
            judge_id="j#1", model="small", stands_for="small", golden="g", state="unfit", checked_at=1.0
        )
        row.reason = "kappa 0.1"
        session.add(row)
    await seen.run_once()
    await news_of(journal, settings, told).run_once()
    assert [event for event, _ in told.notices] == ["learning starved", "judge unfit", "disk low"]
    assert told.notices[0][1] == {"agent": "agent", "reason": "waits for 4 more rated replies"}
    assert told.notices[1][1] == {"judge": "small", "reason": "kappa 0.1"}
    monkeypatch.setattr(news, "learning_state", lambda *_: LearningState("fine"))
    last = news_of(journal, settings, told)
    await last.run_once()
    monkeypatch.setattr(news, "learning_state", lambda *_: starved)
    await last.run_once()
    assert [event for event, _ in told.notices[3:]] == ["learning starved"]


async def test_a_mistake_ends_nothing(journal: Journal, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> LearningState:
        raise ValueError("broken")

    monkeypatch.setattr(news, "learning_state", broken)
    n_looks = 0

    def is_stopping() -> bool:
        nonlocal n_looks
        n_looks += 1
        return n_looks > 1

    monkeypatch.setattr(news, "INTERVAL", 0.0)
    await news_of(journal, settings, Told()).run_forever(is_stopping)
    assert n_looks >= 2
