"""Canaries and watches on a real journal and serving table: bad versions are stopped, good ones go live."""

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from swap_world import PROMPTS, World

from burnish import config
from burnish.adapters.evidence.comparison import Comparison, Rules
from burnish.adapters.evidence.observation import lower_rate
from burnish.adapters.registry import agents, canaries, lifecycle
from burnish.adapters.serving.prepare import refresh
from burnish.adapters.verbs import canary, releases
from burnish.errors import Conflict, NotFound
from burnish.journal.tables import AgentRow, AuditRow, CanaryRow, InteractionRow
from burnish.journal.turns import record_judgement
from burnish.learner.run.ledger import Ledger
from burnish.records import Observation
from burnish.server.rollout.canary.observer import Observer
from burnish.server.rollout.forgetting_prompts import RetentionSet
from burnish.server.rollout.notices.alerts import Alerts
from burnish.server.rollout.swapper import Swapper
from tests.factories import interaction, judgement, user
from tests.turns import add_turn


class Heard(Alerts):
    """Collected alerts."""

    def __init__(self) -> None:
        super().__init__("")
        self.heard: list[tuple[str, dict[str, Any]]] = []

    def send(self, event: str, **facts: Any) -> None:
        self.heard.append((event, facts))


class Stage(World):
    """A world with canaries on and judged turns."""

    def __init__(self, folder: Path, **chosen: Any) -> None:
        self.chosen = {
            "state_dir": str(folder),
            "engine.urls": ["http://engine"],
            "canary.mode": "on",
            "canary.share": 0.5,
        }
        self.chosen |= {f"canary.{name}": value for name, value in chosen.items()}
        self.rules = Rules()
        self.alerts = Heard()
        self.chance = random.Random(1)
        super().__init__(folder)

    def restarted(self) -> Swapper:
        self.settings = config.load(flags=self.chosen)
        observer = Observer(
            self.journal, self.file, lambda _: self.settings, self.alerts, interval=0.0, rules=self.rules
        )
        options: dict[str, Any] = {
            "base_name": "base",
            "tolerance": 1e-3,
            "retention_margin": 0.1,
            "observer": observer,
        }
        self.swapper = Swapper(
            self.journal, self.store, self.engines, self.file, retention=RetentionSet(PROMPTS), **options
        )
        return self.swapper

    def turns(self, version: int, n: int, rate: float, **changes: Any) -> list[str]:
        """Add `n` judged turns of a version that have just ended, each of another user."""
        names = []
        for _ in range(n):
            now = time.time()
            fields = {"version": version, "started_at": now - 1.0, "ended_at": now, "user": f"u-{self.chance.random()}"}
            name = add_turn(self.journal, interaction([user("hi")], **fields | changes), is_ready=True)
            with self.journal.write() as session:
                record_judgement(session, judgement(name, 1 if self.chance.random() < rate else -1), "next_state")
            names.append(name)
        return names

    async def publish_at_once(self, *numbers: int) -> None:
        """Make versions live without a canary."""
        self.chosen["canary.mode"] = "off"
        self.restarted()
        await self.publish(*numbers)
        self.chosen["canary.mode"] = "on"
        self.restarted()

    async def answer(self, rates: dict[int, float], rounds: int = 60) -> None:
        """Add ten turns of each version and look, until nothing runs."""
        for _ in range(rounds):
            for number, rate in rates.items():
                self.turns(number, 10, rate)
            await self.swapper.run_once()
            if not self.running():
                return

    def running(self) -> list[CanaryRow]:
        with self.journal.read() as session:
            return list(canaries.running(session))

    def last(self, kind: Observation = Observation.CANARY) -> CanaryRow:
        with self.journal.read() as session:
            return next(row for row in canaries.history(session, "agent", 20) if row.kind == kind)

    def agent(self) -> AgentRow:
        with self.journal.read() as session:
            return agents.find(session, "agent")

    def audits(self) -> list[tuple[str, str]]:
        with self.journal.read() as session:
            return [(row.actor, row.action) for row in session.query(AuditRow).order_by(AuditRow.audit_id)]  # type: ignore[arg-type]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.chdir(tmp_path)
    return Stage(tmp_path / "state", watch=False)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.chdir(tmp_path)
    return Stage(tmp_path / "state", mode="off")


async def test_a_version_that_passed_the_gate_answers_a_share_and_is_not_live(stage: Stage) -> None:
    stage.announce(1)
    await stage.swapper.run_once()
    assert stage.live() == 0
    route = stage.route()
    assert (route.canary, route.canary_share, route.loaded) == (1, 0.5, (1,))
    assert stage.version(1).state == "canary"
    assert stage.version(1).evidence["retention"]["n"] == 64
    assert stage.outcome(1) == ("open", False)
    assert Ledger(stage.journal, "agent").undecided() == 1
    await stage.swapper.run_once()
    assert "agent@v1" in stage.engine.loaded  # only `canary` names it


async def test_a_bad_version_is_stopped_with_the_figures_and_its_rows_are_spent(stage: Stage) -> None:
    stage.announce(1)
    await stage.swapper.run_once()
    await stage.answer({0: 0.9, 1: 0.3})
    row = stage.last()
    assert (row.state, stage.live(), stage.route().canary) == ("stopped", 0, None)
    assert "judged turns good, against " in (row.reason or "")
    version = stage.version(1)
    assert version.state == "refused"
    assert version.reason.startswith("canary: judged worse: ")
    assert version.evidence["canary"]["state"] == "stopped"
    assert version.evidence["retention"]["n"] == 64
    assert stage.outcome(1) == ("refused", True)
    assert Ledger(stage.journal, "agent").undecided() is None
    assert [event for event, _ in stage.alerts.heard] == ["canary stopped"]
    late = stage.turns(1, 1, 0.0)[0]  # was running
    await stage.swapper.run_once()
    with stage.journal.read() as session:
        skip_reasons = {row.skip_reason for row in session.query(InteractionRow).filter_by(version=1, spent_step=None)}
        assert skip_reasons == {"sampled from agent@v1, which was refused on its canary"}, late
    assert stage.agent().held is None
    await stage.swapper.run_once()
    assert stage.engine.loaded == {}


async def test_a_good_version_passes_and_goes_live(stage: Stage) -> None:
    stage.announce(1)
    await stage.swapper.run_once()
    await stage.answer({0: 0.8, 1: 0.9})
    assert (stage.last().state, stage.live(), stage.route().canary) == ("passed", 1, None)
    version = stage.version(1)
    assert version.state == "live"
    assert "not worse by 10% or more" in version.evidence["canary"]["reason"]
    assert stage.outcome(1) == ("published", True)
    with stage.journal.read() as session:
        assert lifecycle.alias(session, "agent", canaries.CANARY) is None


async def test_too_little_traffic_is_recorded_as_skipped(stage: Stage) -> None:
    stage.announce(1)
    await stage.swapper.run_once()
    stage.turns(1, 5, 1.0)
    await stage.swapper.run_once()
    assert stage.running()
    with stage.journal.write() as session:
        session.get_one(CanaryRow, stage.running()[0].canary_id).started_at -= 25 * 3600
    await stage.swapper.run_once()
    assert stage.last().state == "skipped"
    assert (stage.last().reason or "").startswith("too little traffic: 5 judged turns in 25 h, 50 needed")
    assert stage.version(1).state == "live"
    assert (stage.live(), stage.route().canary) == (1, None)


async def test_a_restart_in_mid_canary_goes_on_where_it_was(stage: Stage) -> None:
    stage.announce(1)
    await stage.swapper.run_once()
    stage.turns(0, 20, 0.8)
    stage.turns(1, 15, 0.8)
    await stage.swapper.run_once()
    before = stage.running()[0].evidence
    stage.engine.loaded.clear()
    refresh(stage.settings, stage.journal)
    await stage.restarted().run_once()
    assert set(stage.engine.loaded) == {"agent@v1"}
    assert stage.running()[0].evidence["comparison"] == before["comparison"]
    assert stage.route().canary == 1
    stage.turns(1, 3, 0.8)
    await stage.swapper.run_once()
    seen = Comparison.of(Rules(), stage.running()[0].evidence["comparison"])  # type: ignore[arg-type]
    assert (seen.version.n, seen.baseline.n) == (18, 20)


async def test_a_turn_counts_once_when_its_reward_is_known_or_nobody_waits_any_longer(stage: Stage) -> None:
    stage.announce(1)
    await stage.swapper.run_once()

    def seen() -> tuple[int, int]:
        arm = Comparison.of(Rules(), stage.running()[0].evidence["comparison"]).version  # type: ignore[arg-type]
        return arm.n, arm.n_judged

    now = time.time()
    late = add_turn(stage.journal, interaction([user("a")], version=1, started_at=now, ended_at=now))
    stage.turns(1, 4, 1.0)
    add_turn(
        stage.journal,
        interaction([user("a")], version=1, started_at=now, ended_at=time.time(), is_aborted=True),
        is_ready=True,
    )
    add_turn(
        stage.journal,
        interaction([user("a")], version=1, started_at=now, ended_at=time.time()),
        kind="side",
        is_ready=True,
    )
    for _ in range(3):
        await stage.swapper.run_once()
        assert seen() == (4, 4)
    with stage.journal.write() as session:
        record_judgement(session, judgement(late, 1), "next_state")
        session.get_one(InteractionRow, late).is_ready = True
    await stage.swapper.run_once()
    assert seen() == (5, 5)
    never = add_turn(stage.journal, interaction([user("a")], version=1, started_at=now, ended_at=time.time()))
    await stage.swapper.run_once()
    assert seen() == (5, 5)
    stage.rules = Rules(patience=0.0)
    stage.restarted()
    await stage.swapper.run_once()
    await stage.swapper.run_once()
    assert seen() == (6, 5), never


async def test_an_operator_who_changes_what_is_live_ends_the_canary_and_the_candidate(stage: Stage) -> None:
    await stage.publish_at_once(1)
    stage.announce(2)
    await stage.swapper.run_once()
    assert stage.route().canary == 2
    releases.rollback(stage.settings, stage.journal, "agent", to=0, actor="ana")
    assert (stage.route().canary, stage.version(2).state, stage.last().state) == (None, "candidate", "cancelled")
    await stage.swapper.run_once()
    assert (stage.version(2).state, stage.outcome(2), stage.live()) == ("refused", ("superseded", False), 0)


async def test_an_operator_promotes_what_is_on_canary(stage: Stage) -> None:
    stage.announce(1)
    await stage.swapper.run_once()
    releases.promote(stage.settings, stage.journal, "agent", 1, actor="ana")
    assert (stage.live(), stage.version(1).state, stage.route().canary) == (1, "live", None)
    assert (stage.last().state, stage.last().reason) == ("cancelled", "v1 was made live by ana")
    assert stage.outcome(1) == ("published", True)


async def test_start_and_stop_by_hand(stage: Stage) -> None:
    given: Any = (stage.settings, stage.journal, "agent")
    await stage.publish_at_once(1, 2, 3)
    with pytest.raises(Conflict, match="agent@v3 is live already"):
        canary.start(*given, 3, share=None, actor="ana")
    with pytest.raises(NotFound, match="no version agent@v9"):
        canary.start(*given, 9, share=None, actor="ana")
    with pytest.raises(Conflict, match="no canary of 'agent' runs"):
        canary.stop(*given, actor="ana")
    assert canary.start(*given, 2, share=0.2, actor="ana") == "agent@v2 answers 20% of the conversations, beside v3"
    assert (stage.route().canary, stage.route().canary_share) == (2, 0.2)
    with pytest.raises(Conflict, match="agent@v2 is on canary; `burnish canary stop` ends it"):
        canary.start(*given, 1, share=None, actor="ana")
    assert canary.stop(*given, actor="ana", reason="enough") == "agent@v2 was refused: enough"
    assert (stage.route().canary, stage.version(2).state) == (None, "refused")
    with pytest.raises(Conflict, match="agent@v2 was refused"):
        canary.start(*given, 2, share=None, actor="ana")
    await stage.swapper.run_once()
    assert "agent@v1" not in stage.engine.loaded
    assert "is being loaded" in canary.start(*given, 1, share=None, actor="ana")
    await stage.swapper.run_once()
    assert stage.route().canary == 1
    assert "agent@v1" in stage.engine.loaded


async def test_status_tells_turns_pairs_and_evidence(stage: Stage) -> None:
    stage.announce(1)
    await stage.swapper.run_once()
    stage.turns(0, 12, 1.0)
    stage.turns(1, 10, 0.0)
    await stage.swapper.run_once()
    with stage.journal.read() as session:
        told = json.loads(json.dumps(canary.status(session, "agent")))
    found = told["observations"][0]
    assert (told["live"], told["held"], found["state"]) == (0, None, "running")
    assert found["turns"]["version"] == {"turns": 10, "judged": 10, "good": 0, "left_out": 0, "users": 10}
    assert found["pairs"]["reward"] == {"lost": 10, "won": 0, "tied": 0}
    assert found["tests"]["reward"]["alpha"] == 0.005


async def test_a_bad_version_that_went_live_is_rolled_back_by_itself(watched: Stage) -> None:
    stage = watched
    await stage.publish(1)
    stage.turns(1, 60, 0.9)
    stage.announce(2, 1)
    await stage.swapper.run_once()
    assert (stage.live(), stage.running()[0].kind, stage.running()[0].baseline) == (2, "watch", 1)
    spent = stage.turns(2, 1, 0.0)[0]
    with stage.journal.write() as session:
        session.get_one(InteractionRow, spent).spent_step = 1
    stage.announce(3, 2)  # the learner's next step, made from the bad version
    stage.engine.calls.clear()
    names = stage.turns(2, 25, 0.1)
    stage.swapper._observer.look()  # type: ignore[union-attr]
    assert stage.live() == 1
    assert stage.engine.calls == []  # a pointer flip
    assert (stage.version(2).state, stage.last(Observation.WATCH).state) == ("rolled_back", "stopped")
    assert "judged worse" in stage.version(2).reason
    assert stage.route().previous is None
    assert (stage.version(3).state, stage.version(3).reason) == ("refused", "its parent agent@v2 was rolled back")
    assert (stage.agent().held or "").startswith("v2 was rolled back by itself: judged worse")
    with stage.journal.read() as session:
        skip_reasons = {session.get_one(InteractionRow, name).skip_reason for name in names}
        assert skip_reasons == {"sampled from agent@v2, which was rolled back"}
        assert session.get_one(InteractionRow, spent).skip_reason is None
    event, facts = stage.alerts.heard[-1]
    assert (event, facts["from"], facts["to"], facts["rows_dropped"], facts["refused"]) == (
        "rolled back",
        2,
        1,
        25,
        [3],
    )
    assert ("watch", "promote") in stage.audits()
    late = stage.turns(2, 1, 0.1)[0]  # was running when the alias moved
    await stage.swapper.run_once()
    with stage.journal.read() as session:
        assert session.get_one(InteractionRow, late).skip_reason == "sampled from agent@v2, which was rolled back"
    assert not stage.agent().is_paused


async def test_while_it_is_held_candidates_wait_and_after_the_release_they_are_tried(watched: Stage) -> None:
    stage = watched
    await stage.publish(1)
    with stage.journal.write() as session:
        agents.hold(session, "agent", "looking into it", actor="ana")
    stage.announce(2, 1)
    await stage.swapper.run_once()
    assert (stage.live(), stage.version(2).state) == (1, "candidate")
    assert "agent is held: looking into it" in (stage.job("agent@v2").error or "")
    await stage.swapper.run_once()
    with stage.journal.write() as session:
        assert agents.end_hold(session, "agent", actor="ana") == "looking into it"
    await stage.swapper.run_once()
    assert stage.live() == 2


async def test_a_canary_that_passes_while_held_waits_for_the_release(stage: Stage) -> None:
    stage.announce(1)
    await stage.swapper.run_once()
    with stage.journal.write() as session:
        agents.hold(session, "agent", "looking into it", actor="ana")
    await stage.answer({0: 0.7, 1: 1.0}, rounds=30)
    assert (stage.live(), stage.route().canary) == (0, 1)
    with stage.journal.write() as session:
        agents.end_hold(session, "agent", actor="ana")
    await stage.swapper.run_once()
    assert stage.live() == 1


async def test_after_three_rollbacks_in_a_day_learning_is_paused_and_serving_goes_on(watched: Stage) -> None:
    stage = watched
    await stage.publish(1)
    for number in (2, 3, 4):
        stage.turns(1, 40, 0.9)
        with stage.journal.write() as session:
            agents.end_hold(session, "agent", actor="ana")
        stage.announce(number, 1)
        await stage.swapper.run_once()
        assert stage.live() == number
        assert not stage.agent().is_paused
        await stage.answer({number: 0.0})
        assert stage.live() == 1
    assert stage.agent().is_paused
    assert Ledger(stage.journal, "agent").is_paused()
    assert stage.alerts.heard[-1][1]["learning_paused"]
    assert stage.route().live == 1


async def test_a_learners_step_from_a_version_that_was_rolled_back_meanwhile_is_refused(watched: Stage) -> None:
    stage = watched
    await stage.publish(1)
    stage.turns(1, 40, 0.9)
    stage.announce(2, 1)
    await stage.swapper.run_once()
    await stage.answer({2: 0.0})
    stage.announce(3, 2)
    await stage.swapper.run_once()
    assert (stage.version(3).state, stage.version(3).reason) == ("refused", "its parent agent@v2 was rolled back")
    assert stage.live() == 1


async def test_a_better_version_is_left_alone_until_its_watch_is_through(watched: Stage) -> None:
    stage = watched
    stage.rules = Rules(watch_turns=120)
    stage.restarted()
    await stage.publish(1)
    assert stage.last(Observation.WATCH).baseline == 0
    await stage.answer({1: 0.9})
    assert (stage.live(), stage.last(Observation.WATCH).state) == (1, "passed")
    assert (
        stage.last(Observation.WATCH).reason
        == "nothing found in 120 judged turns: " + (stage.last(Observation.WATCH).reason or "").partition(": ")[2]
    )


async def test_the_next_promotion_ends_a_watch_and_so_does_an_operator(watched: Stage) -> None:
    stage = watched
    await stage.publish(1, 2)
    with stage.journal.read() as session:
        told = [(row.version, row.state) for row in canaries.history(session, "agent", 9)]
    assert told == [(2, "running"), (1, "cancelled")]
    said = canary.stop(stage.settings, stage.journal, "agent", kind=Observation.WATCH, actor="ana")
    assert said == "agent@v2 stays live and is watched no longer"
    assert (stage.live(), stage.running()) == (2, [])


async def test_a_known_rate_is_used_where_enough_turns_tell_it(watched: Stage) -> None:
    stage = watched
    stage.rules = Rules(baseline_turns=50)
    stage.restarted()
    stage.turns(0, 60, 1.0)
    await stage.publish(1)
    seen = Comparison.of(Rules(), stage.running()[0].evidence["comparison"])  # type: ignore[arg-type]
    assert seen.known is not None
    assert seen.known.rate == 0.99
    await stage.answer({1: 0.5})
    assert stage.live() == 0
    assert "against a rate of 99%" in (stage.last(Observation.WATCH).reason or "")
    assert lower_rate(80, 100) == pytest.approx(0.8 - 1.64 * 0.04)


async def test_a_holdback_keeps_a_share_with_the_version_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stage = Stage(tmp_path / "state", mode="off", holdback=0.2)
    await stage.publish(1, 2)
    assert (stage.route().live, stage.route().canary, stage.route().canary_share) == (2, 1, 0.2)
    await stage.answer({1: 0.9, 2: 0.2})
    assert (stage.live(), stage.route().canary) == (1, None)


async def test_slow_replies_stop_a_canary_but_never_a_watch_without_a_holdback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine would otherwise roll back every live version."""
    monkeypatch.chdir(tmp_path)
    for mode in ("on", "off"):
        stage = Stage(tmp_path / mode, mode=mode)
        stage.turns(0, 100, 0.9)
        stage.announce(1)
        await stage.swapper.run_once()
        for _ in range(8):
            stage.turns(0, 10, 0.9)
            now = time.time()
            stage.turns(1, 10, 0.9, started_at=now - 60)
            await stage.swapper.run_once()
        if mode == "on":
            assert (
                stage.last().reason
                == "replies slower by more than a factor of 2, evidence "
                + (stage.last().reason or "").partition("evidence ")[2]
            )
        else:
            assert (stage.live(), stage.running()[0].kind) == (1, "watch")


async def test_one_canary_and_one_watch_at_a_time(stage: Stage) -> None:
    stage.announce(1)
    await stage.swapper.run_once()
    with pytest.raises(Conflict, match="is on canary already"), stage.journal.write() as session:
        canaries.begin(session, "agent", 1, 0, Observation.CANARY, share=0.1, actor="test")
    with pytest.raises(Conflict, match="expected v5 of 'agent' to be live"), stage.journal.write() as session:
        canaries.begin(session, "agent", 1, 5, Observation.CANARY, share=0.1, actor="test")


async def test_what_others_watch_is_left_to_them(stage: Stage) -> None:
    with stage.journal.write() as session:
        session.add(
            CanaryRow(agent="agent", version=1, baseline=0, kind="shadow", share=0.5, state="running", started_at=1.0)
        )
    await stage.swapper.run_once()
    assert stage.route().canary is None
    assert stage.running()[0].state == "running"
