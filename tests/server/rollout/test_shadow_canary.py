"""A shadow canary: the version answers live turns unseen, and the judge's verdicts on the pairs decide."""

import random
import time
from math import log
from pathlib import Path
from typing import Any

import pytest

from burnish.adapters.evidence.comparison import Comparison, Rules, Turn
from burnish.adapters.registry import canaries, lifecycle
from burnish.adapters.verbs import canary
from burnish.errors import Conflict, EngineError, EngineUnavailable
from burnish.journal.tables import AliasRow, CanaryRow, CompareJob, ComparisonRow, InteractionRow
from burnish.journal.turns import messages_of
from burnish.records import Observation, Sampling
from burnish.server.rollout.canary.mirror import Mirror, is_mirrored
from tests.factories import interaction, user
from tests.turns import add_turn

from test_canary_run import Stage  # isort: skip

LONG = Turn(None, None, None, 30.0, None)


class Shadow(Stage):
    """A world with versions on shadow canary and a scripted judge."""

    n_turns = 0

    @property
    def mirror(self) -> Mirror:
        return Mirror(self.journal, self.engine)

    def talk(self, n: int, **changes: Any) -> list[str]:
        """Add `n` turns of the base that have just ended, each of another user."""
        names = []
        for _ in range(n):
            self.n_turns += 1
            now = time.time()
            fields: dict[str, Any] = {"version": 0, "started_at": now, "ended_at": now, "user": f"u-{self.n_turns}"}
            names.append(add_turn(self.journal, interaction([user(f"turn {self.n_turns}")], **fields | changes)))
        return names

    def pairs(self) -> list[ComparisonRow]:
        with self.journal.read() as session:
            return session.query(ComparisonRow).order_by(ComparisonRow.created_at).all()  # type: ignore[arg-type]

    def judge(self, rate: float) -> None:
        """The shadow's reply is better in `rate` of the open pairs, worse in the others."""
        with self.journal.write() as session:
            for row in session.query(ComparisonRow).filter_by(outcome=None, reason=None).all():
                row.outcome = 1 if self.chance.random() < rate else -1

    async def run(self, rate: float, rounds: int = 40) -> None:
        for _ in range(rounds):
            self.talk(20)
            await self.mirror.run_once()
            self.judge(rate)
            await self.swapper.run_once()
            if not self.running():
                return


@pytest.fixture
async def shadow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shadow:
    monkeypatch.chdir(tmp_path)
    stage = Shadow(tmp_path / "state", mode="shadow", watch=False)
    stage.rules = Rules(shadow_share=1.0)
    stage.restarted()
    stage.engine.replies = lambda model, text: (
        "another answer" if model == "agent@v1" and text.startswith("turn") else "ok"
    )
    stage.announce(1)
    await stage.swapper.run_once()
    return stage


async def test_it_is_loaded_and_answers_nobody(shadow: Shadow) -> None:
    assert (shadow.live(), shadow.version(1).state) == (0, "canary")
    route = shadow.route()
    assert (route.canary, route.canary_share, route.loaded) == (1, 0.0, (1,))
    (row,) = shadow.running()
    assert (row.kind, row.share) == (Observation.SHADOW, 1.0)
    await shadow.swapper.run_once()
    assert "agent@v1" in shadow.engine.loaded


async def test_each_turn_is_answered_once_and_handed_to_the_judge(shadow: Shadow) -> None:
    names = shadow.talk(5)
    assert await shadow.mirror.run_once() == 5
    assert await shadow.mirror.run_once() == 0
    assert sorted(row.interaction_id for row in shadow.pairs()) == sorted(names)
    with shadow.journal.read() as session:
        jobs = [job.payload for job in session.query(CompareJob).all()]
    assert {(job["version"], job["interaction_id"]) for job in jobs} == {(1, name) for name in names}


@pytest.mark.parametrize(("redact", "said"), [((), "mail ann@example.org"), (("agent",), "mail [email]")])
async def test_replies_are_kept_as_the_agents_turns_are(shadow: Shadow, redact: tuple[str, ...], said: str) -> None:
    shadow.engine.replies = lambda model, text: "mail ann@example.org"
    shadow.talk(1)
    assert await Mirror(shadow.journal, shadow.engine, redact=redact).run_once() == 1
    (pair,) = shadow.pairs()
    with shadow.journal.read() as session:
        (kept,) = messages_of(session, [pair.candidate_digest])
    assert kept["content"] == said


async def test_turns_that_may_not_be_answered_again_are_left_alone(shadow: Shadow) -> None:
    earlier = time.time() - 3600
    shadow.talk(2, may_train=False)
    shadow.talk(2, is_aborted=True)
    shadow.talk(2, finish_reason="length")
    shadow.talk(2, version=7)
    elsewhere = shadow.talk(2)
    with shadow.journal.write() as session:
        for name in elsewhere:
            session.get_one(InteractionRow, name).upstream = "a-larger-model"
    shadow.talk(2, quarantine="length_mismatch")
    shadow.talk(2, sampling=Sampling(top_p=0.5))
    shadow.talk(2, started_at=earlier, ended_at=earlier)
    assert await shadow.mirror.run_once() == 0
    shadow.talk(1, sampling=Sampling(temperature=0.0))
    shadow.talk(1, sampling=Sampling(temperature=0.6))
    assert await shadow.mirror.run_once() == 2


async def test_a_worse_version_is_refused_and_no_user_saw_it(shadow: Shadow) -> None:
    await shadow.run(0.25)
    row = shadow.last(Observation.SHADOW)
    assert (row.state, shadow.live(), shadow.route().canary) == ("stopped", 0, None)
    assert "turns that both answered" in (row.reason or "")
    version = shadow.version(1)
    assert version.state == "refused" and version.reason.startswith("shadow: judged worse: better in ")
    assert shadow.outcome(1) == ("refused", True)
    assert [event for event, _ in shadow.alerts.heard] == ["shadow stopped"]
    with shadow.journal.read() as session:
        assert session.query(InteractionRow).filter_by(version=1).count() == 0
    await shadow.swapper.run_once()
    assert shadow.engine.loaded == {}


async def test_a_better_version_goes_live(shadow: Shadow) -> None:
    await shadow.run(0.75)
    assert (shadow.last(Observation.SHADOW).state, shadow.live()) == ("passed", 1)
    assert "not worse by 10% or more: better in " in shadow.version(1).evidence["canary"]["reason"]
    with shadow.journal.read() as session:
        assert lifecycle.alias(session, "agent", canaries.CANARY) is None


async def test_the_same_replies_pass_without_a_judge(shadow: Shadow) -> None:
    shadow.engine.replies = lambda model, text: "ok"
    for _ in range(40):
        shadow.talk(20)
        await shadow.mirror.run_once()
        await shadow.swapper.run_once()
        if not shadow.running():
            break
    assert shadow.live() == 1
    with shadow.journal.read() as session:
        assert session.query(CompareJob).count() == 0


async def test_pairs_that_nobody_could_decide_are_no_evidence(shadow: Shadow) -> None:
    shadow.talk(30)
    await shadow.mirror.run_once()
    with shadow.journal.write() as session:
        for row in session.query(ComparisonRow).all():
            row.reason = "left undecided: the judge is away"
    await shadow.swapper.run_once()
    (row,) = shadow.running()
    seen = Comparison.of(Rules(), row.evidence["comparison"])  # type: ignore[arg-type]
    assert (seen.version.n, seen.version.n_judged, seen.pairs["reward"].n) == (30, 0, 0)


async def test_a_pair_is_counted_once_across_restarts(shadow: Shadow) -> None:
    for _ in range(3):
        shadow.talk(4)
        await shadow.mirror.run_once()
        shadow.judge(0.5)
        shadow.restarted()
        await shadow.swapper.run_once()
        await shadow.swapper.run_once()
    (row,) = shadow.running()
    seen = Comparison.of(Rules(), row.evidence["comparison"])  # type: ignore[arg-type]
    assert seen.version.n_judged == seen.pairs["reward"].n == 12


async def test_a_turn_that_the_engine_refuses_makes_no_pair(shadow: Shadow, monkeypatch: pytest.MonkeyPatch) -> None:
    (odd, *_) = shadow.talk(3)
    real = shadow.engine.chat

    async def chat(model: str, messages: Any, **options: Any) -> Any:
        if messages[0]["content"] == "turn 1":
            raise EngineError("too long")
        return await real(model, messages, **options)

    monkeypatch.setattr(shadow.engine, "chat", chat)
    mirror = shadow.mirror
    assert await mirror.run_once() == 2
    monkeypatch.setattr(shadow.engine, "chat", real)
    assert await mirror.run_once() == 0  # nor is it asked for again
    assert odd not in {row.interaction_id for row in shadow.pairs()}


async def test_an_engine_that_is_away_is_waited_for(shadow: Shadow, monkeypatch: pytest.MonkeyPatch) -> None:
    shadow.talk(3)
    real, calls = shadow.engine.chat, [0]

    async def chat(model: str, messages: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] <= 3:
            raise EngineUnavailable("away")
        return await real(model, messages, **options)

    monkeypatch.setattr(shadow.engine, "chat", chat)
    await shadow.mirror.run_forever(lambda: len(shadow.pairs()) == 3, interval=0.01)
    assert len(shadow.pairs()) == 3


async def test_an_operator_stops_it_like_a_canary(shadow: Shadow) -> None:
    with pytest.raises(Conflict, match=r"still on trial|is on shadow"):
        canary.start(shadow.settings, shadow.journal, "agent", 1, share=0.1, actor="ana")
    said = canary.stop(shadow.settings, shadow.journal, "agent", actor="ana", reason="not today")
    assert said == "agent@v1 was refused: not today"
    assert shadow.version(1).state == "refused" and shadow.route().canary is None


async def test_whoever_changes_what_is_live_has_it_tried_again(shadow: Shadow) -> None:
    shadow.talk(3)
    await shadow.mirror.run_once()
    with shadow.journal.write() as session:
        canaries.cancel(session, "agent", "another one is live", promoted=9)
    assert shadow.version(1).state == "candidate"
    assert shadow.last(Observation.SHADOW).state == "cancelled"
    with shadow.journal.read() as session:
        assert session.get(AliasRow, ("agent", "canary")) is None
    await shadow.swapper.run_once()
    assert [row.kind for row in shadow.running()] == ["shadow"]
    with shadow.journal.read() as session:
        assert session.query(CanaryRow).count() == 2


def test_a_share_of_the_turns_is_mirrored_and_always_the_same_ones() -> None:
    names = [f"chatcmpl-{number}" for number in range(4000)]
    found = {name for name in names if is_mirrored(name, 0.25)}
    assert 850 < len(found) < 1150
    assert found == {name for name in names if is_mirrored(name, 0.25)}
    assert found < {name for name in names if is_mirrored(name, 0.5)}


@pytest.mark.parametrize(("better", "is_stopped"), [(0.5, 0.0), (0.2, 1.0)])
def test_identical_versions_are_hardly_ever_stopped_and_bad_ones_are(better: float, is_stopped: float) -> None:
    chance = random.Random(3)
    n_stopped = 0
    for _ in range(60):
        seen = Comparison(Rules())
        for number in range(200):
            seen.add_mirrored(f"u{number}", 1 if chance.random() < better else -1, LONG, LONG)
        n_stopped += "reward" in {name for name, (test, alpha) in seen.tests.items() if test.peak >= -log(alpha)}
    assert abs(n_stopped / 60 - is_stopped) <= 0.05


def test_longer_replies_stop_a_shadow_that_the_judge_likes() -> None:
    seen = Comparison(Rules())
    for number in range(60):
        seen.add_mirrored(f"u{number}", 1, LONG, Turn(None, None, None, 300.0, None))
    assert seen.amounts["length"].peak > 7 and seen.pairs["reward"].peak == 0.0
