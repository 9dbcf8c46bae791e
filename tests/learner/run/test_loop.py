"""The loop: one step from the live version, one candidate at a time, and nothing spent twice, however it ends."""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from world import SETTINGS, Make, World

from burnish import config
from burnish.adapters.registry import lifecycle
from burnish.errors import AdapterError, LearnerError
from burnish.journal import Journal
from burnish.journal.evidence import settle
from burnish.journal.tables import AgentRow, FeedbackRow, InteractionRow, LeaseRow, SampleRow, StepRow, VersionRow
from burnish.learner.run import process
from burnish.learner.run.trainer import Trainer
from burnish.learner.run.work import StepResult, Work
from burnish.records import Sampling
from tests.turns import add_feedback


@pytest.fixture
def world(journal: Journal, tmp_path: Path, make_trainer: Make) -> World:
    return World(journal, tmp_path, make_trainer)


def test_enough_rows_become_one_candidate_and_the_loop_waits_for_its_trial(world: World) -> None:
    names = world.add(5)
    assert world.loop.run_once()
    assert world.states() == {1: "candidate"}
    assert world.steps() == [(1, 0, "open", 1)]
    assert world.rows_of(1) == sorted(names)
    manifest = world.store.verify("agent", 1)
    assert (manifest["parent"], sorted(manifest["rows"])) == (0, sorted(names))
    world.add(8)
    assert not world.loop.run_once()
    assert world.files() == ["v000001"]


def test_few_rows_wait_until_they_are_old_enough(world: World) -> None:
    now = time.time()
    world.add(2, ended_at=now)
    assert not world.loop.run_once()
    patient = world.learner(max_wait=1e12)
    with world.journal.write() as session:
        for row in session.query(InteractionRow).all():
            row.ended_at = now - 1000.0
    assert not patient.run_once()
    assert world.loop.run_once()
    assert world.steps() == [(1, 0, "open", 1)]


def test_a_single_row_of_four_is_never_enough(world: World) -> None:
    world.add(1)
    assert not world.loop.run_once()
    assert world.steps() == []


def test_a_step_takes_no_more_rows_than_allowed_oldest_first(world: World) -> None:
    names = world.add(11)
    world.loop.run_once()
    assert world.rows_of(1) == sorted(names[:8])


def test_a_paused_agent_takes_no_step(world: World) -> None:
    world.add(5)
    with world.journal.write() as session:
        session.get_one(AgentRow, "agent").is_paused = True
    assert not world.loop.run_once()
    with world.journal.write() as session:
        session.get_one(AgentRow, "agent").is_paused = False
    assert world.loop.run_once()


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return trainer.policy.copy_adapter()


def are_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def starting_points(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    """The adapter that each step begins from."""
    found: list[dict[str, torch.Tensor]] = []
    take = trainer.take

    def watched(work: Work) -> StepResult:
        found.append(weights(trainer))
        return take(work)

    monkeypatch.setattr(trainer, "take", watched)
    return found


def test_learning_continues_from_a_promoted_version(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    begins = starting_points(world.trainer, monkeypatch)
    world.add(5)
    world.loop.run_once()
    world.promote(1, 0)
    world.add(5)
    assert world.loop.run_once()
    assert [step[:3] for step in world.steps()] == [(1, 0, "published"), (2, 1, "open")]
    assert are_equal(begins[1], load_file(world.store.path("agent", 1) / "adapter_model.safetensors"))
    assert world.trainer.policy.has_teacher


def test_a_promoted_version_is_loaded_before_there_is_anything_to_learn(world: World) -> None:
    world.add(5)
    world.loop.run_once()
    assert not world.loop.run_once() and not world.trainer.policy.has_teacher  # its version is on trial
    world.promote(1, 0)
    assert not world.loop.run_once()
    assert world.trainer.policy.has_teacher


def test_a_refused_step_does_not_change_the_next_one(
    world: World, tmp_path: Path, sqlite_url: str, migrated_file: Path, make_trainer: Make
) -> None:
    """Weights, moments, random numbers and baselines: bit for bit."""
    refused = world.add(5)
    world.loop.run_once()
    world.refuse(1)
    assert set(world.spent().values()) == {1}
    world.add(6)
    assert world.loop.run_once()
    assert [step[:3] for step in world.steps()] == [(1, 0, "refused"), (2, 0, "open")]
    assert not set(world.rows_of(2)) & set(refused)

    other_file = tmp_path / "other.db"
    other_file.write_bytes(migrated_file.read_bytes())
    other_journal = Journal.open(f"sqlite:///{other_file}")
    without = World(other_journal, tmp_path / "other", make_trainer)
    without.n_turns = 5
    without.add(6)
    assert without.loop.run_once()
    for name in ("adapter_model.safetensors", "optimizer.safetensors", "state.json", "probe.json"):
        assert world.digest(2, name) == without.digest(1, name), name
    other_journal.close()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_rollback_restores_the_learner(world: World, monkeypatch: pytest.MonkeyPatch, restarts: bool) -> None:
    for number in (1, 2):
        world.add(5)
        world.loop.run_once()
        world.promote(number, number - 1)
    with world.journal.write() as session:
        lifecycle.rollback(session, "agent", actor="cli")
    world.add(5)
    loop = world.learner(world.trainer) if restarts else world.loop
    begins = starting_points(world.trainer, monkeypatch)
    if restarts:
        forget_the_dead(world)
    assert loop.run_once()
    assert world.steps()[-1][:3] == (3, 1, "open")
    assert are_equal(begins[0], load_file(world.store.path("agent", 1) / "adapter_model.safetensors"))


def test_a_rollback_to_the_base_resets_the_learner(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = weights(world.trainer)
    world.add(5)
    world.loop.run_once()
    world.promote(1, 0)
    with world.journal.write() as session:
        lifecycle.rollback(session, "agent", actor="cli")
    world.add(5)
    begins = starting_points(world.trainer, monkeypatch)
    assert world.loop.run_once()
    assert are_equal(begins[0], fresh)
    assert not world.trainer.policy.has_teacher


def test_rows_of_too_old_a_policy_are_discarded_with_the_reason(world: World) -> None:
    for number in range(1, 4):
        with world.journal.write() as session:
            step = StepRow(agent="agent", version=number, parent=0, outcome="published", metrics={}, started_at=0.0)
            session.add(step)
    world.add(5)
    world.loop.run_once()
    world.promote(4, 0)
    stale, fresh = world.add(3, version=0), world.add(5, version=3)
    loop = world.learner(world.trainer, max_off_policy_steps=3)
    forget_the_dead(world)
    assert loop.run_once()
    assert world.rows_of(5) == sorted(fresh)
    assert {world.skip_reasons()[name] for name in stale} == {"stale: 4 versions behind"}


def test_rows_that_cannot_be_trained_are_discarded_with_the_reason(world: World) -> None:
    (cut,) = world.add(1, finish_reason="length")
    (odd,) = world.add(1, sampling=Sampling(is_constrained=True))
    (neutral,) = world.add(1, rating=0.0)
    good = world.add(5)
    assert world.loop.run_once()
    assert world.rows_of(1) == sorted(good)
    skip_reasons = world.skip_reasons()
    assert (skip_reasons[cut], skip_reasons[odd], skip_reasons[neutral]) == ("truncated", "not_chosen", None)
    assert neutral not in world.loop._ledger.ready_ids(100)


def test_a_neutral_row_comes_back_with_the_next_feedback_on_it(world: World) -> None:
    (neutral,) = world.add(1, rating=0.0)
    world.add(5)
    assert world.loop.run_once()
    world.promote(1, 0)
    with world.journal.write() as session:
        add = FeedbackRow(
            feedback_id="late",
            target=neutral,
            interaction_id=neutral,
            tenant="default",
            key_id="k",
            source="user",
            rating=-1.0,
            created_at=9e9,
        )
        session.add(add)
        session.flush()
        settle(session, neutral)
    world.add(5)
    assert world.loop.run_once()
    assert neutral in world.rows_of(2)


def test_a_step_that_fails_is_tried_once_more_and_then_its_rows_are_spent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, fresh = world.add(5), weights(world.trainer)

    def fails(*_: Any) -> StepResult:
        world.trainer.policy.parameters()["base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"].data.add_(
            1.0
        )
        raise LearnerError("the loss is nan")

    with monkeypatch.context() as broken:
        broken.setattr(world.trainer, "take", fails)
        assert world.loop.run_once()
        assert set(world.spent().values()) == {None}
        assert world.loop.run_once()
    assert world.steps() == [(1, 0, "superseded", 1), (2, 0, "failed", 2)]
    assert set(world.spent().values()) == {2}
    assert not world.loop.run_once()
    world.add(5)
    begins = starting_points(world.trainer, monkeypatch)
    assert world.loop.run_once()
    assert are_equal(begins[0], fresh)  # the failed step's change of the weights is gone
    assert not set(world.rows_of(3)) & set(names)
    assert world.files() == ["v000003"]


def test_a_step_with_nothing_to_teach_spends_its_rows_and_makes_no_version(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = world.add(5)
    nothing = StepResult(False, (), tuple(names), {})
    monkeypatch.setattr(world.trainer, "take", lambda *_: nothing)
    assert world.loop.run_once()
    assert world.steps() == [(1, 0, "empty", 1)]
    assert set(world.spent().values()) == {1}
    assert (world.states(), world.files()) == ({}, [])


class Killed(BaseException):
    """Represents the end of the process: nothing after it runs, except what unwinding runs."""


@pytest.mark.parametrize(
    "place",
    [
        "burnish.learner.run.trainer.Trainer.take",
        "burnish.adapters.files.store.AdapterStore.publish",
        "burnish.learner.run.ledger.Ledger.announce",
    ],
)
def test_wherever_a_learner_dies_its_rows_are_trained_once(
    world: World, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    names = world.add(5)

    def dies(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as broken:
        broken.setattr(place, dies)
        with pytest.raises(Killed):
            world.loop.run_once()
    assert world.steps() == [(1, 0, "open", 1)]
    (world.store.root / "agent").mkdir(parents=True, exist_ok=True)
    (world.store.root / "agent" / ".v000001.tmp-99").mkdir()  # what kill -9 leaves
    heir = world.learner()
    forget_the_dead(world)
    assert heir.run_once()
    assert world.steps() == [(1, 0, "superseded", 1), (2, 0, "open", 2)]
    assert world.rows_of(2) == sorted(names)
    assert (world.states(), world.files()) == ({2: "candidate"}, ["v000002"])
    kept = [path.name[:13] for path in world.store.root.glob("quarantine/*")]
    assert kept == (
        ["agent@v000001"] if place == "burnish.learner.run.ledger.Ledger.announce" else []
    )  # it was a whole version


def test_directories_unknown_to_the_journal_are_kept(world: World) -> None:
    for name in ("v000001", "v000007", ".v000007.tmp-1"):
        (world.store.root / "agent" / name).mkdir(parents=True)
    assert not world.loop.run_once()
    world.add(1)
    assert not world.loop.run_once()
    assert world.files() == [".v000007.tmp-1", "v000001", "v000007"]


@pytest.mark.parametrize("why", ["another journal", "an older copy"])
def test_a_learner_with_another_store_s_journal_does_not_start(
    world: World, base_dir: Path, sqlite_url: str, tmp_path: Path, migrated_file: Path, why: str
) -> None:
    flags = {
        "engine.model": str(base_dir),
        "state_dir": str(tmp_path),
        "journal.url": sqlite_url,
        "agent.name": "agent",
    }
    flags |= {f"learner.{key}": value for key, value in SETTINGS.items()} | {
        "learner.device": "cpu",
        "learner.monitors": "watch",
    }
    process.run(config.load(flags=flags), lambda: True)  # the first start
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(tmp_path / "journal.db")) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    if why == "another journal":
        copy.write_bytes(migrated_file.read_bytes())
        other = Journal.open(f"sqlite:///{copy}")
        with other.write() as session:
            lifecycle.ensure_agent(session, "agent")
        other.close()
    world.add(5)
    assert world.loop.run_once()
    assert world.files() == ["v000001"]
    with pytest.raises(AdapterError, match="is not the one of" if why == "another journal" else "is older than"):
        process.run(config.load(flags=flags | {"journal.url": f"sqlite:///{copy}"}), lambda: True)
    assert world.files() == ["v000001"]
    world.store.verify("agent", 1)
    process.run(config.load(flags=flags), lambda: True)


def forget_the_dead(world: World) -> None:
    """Lets a dead learner's lease run out."""
    with world.journal.write() as session:
        session.get_one(LeaseRow, "learner:agent").until = 0.0


def test_of_two_learners_one_trains(world: World) -> None:
    """Also if both have the same process id, like the first process of every container."""
    other = world.learner()
    world.add(5)
    assert world.loop.run_once()
    world.promote(1, 0)
    world.add(5)
    assert not other.run_once()
    assert world.steps() == [(1, 0, "published", 1)]
    assert world.loop.run_once()
    assert world.steps()[-1] == (2, 1, "open", 1)


def test_a_learner_that_was_presumed_dead_spends_nothing_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its step took longer than its lease. Another learner has begun meanwhile."""
    names, heir, take = world.add(5), world.learner(), world.trainer.take

    def slow(work: Work) -> StepResult:
        forget_the_dead(world)
        assert heir.run_once()
        return take(work)

    monkeypatch.setattr(world.trainer, "take", slow)
    world.loop.run_once()
    assert world.steps() == [(1, 0, "superseded", 1), (2, 0, "open", 2)]
    assert world.states() == {2: "candidate"}
    assert world.rows_of(2) == sorted(names)


LEARNER = """
import json, sys, time
from pathlib import Path
from burnish.adapters.files.store import AdapterStore
from burnish import config
from burnish.learner.run import process as main

def hang(*_):
    Path(sys.argv[2]).touch()
    time.sleep(600)

AdapterStore.publish = hang
main.run(config.load(flags=json.loads(sys.argv[1])), lambda: False)
"""


def test_a_learner_killed_in_mid_step_leaves_one_candidate_after_its_restart(
    world: World, base_dir: Path, sqlite_url: str, tmp_path: Path
) -> None:
    """A real process, killed with -9 while it writes its version. Then the learner's own entry once more."""
    names = world.add(6)
    flags = {
        "engine.model": str(base_dir),
        "state_dir": str(tmp_path),
        "journal.url": sqlite_url,
        "agent.name": "agent",
    }
    flags |= {f"learner.{key}": value for key, value in SETTINGS.items()} | {
        "learner.device": "cpu",
        "learner.monitors": "watch",
    }
    root, mark = Path(__file__).parents[3], tmp_path / "is writing"
    child = subprocess.Popen(
        [sys.executable, "-c", LEARNER, json.dumps(flags), str(mark)],
        cwd=root,
    )
    deadline = time.monotonic() + 120
    while not mark.exists():
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    assert world.steps() == [(1, 0, "open", 1)]
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert any(name.startswith(".v000001.tmp") for name in world.files())
    forget_the_dead(world)

    n_looks = 0

    def is_stopping() -> bool:
        nonlocal n_looks
        n_looks += 1
        return n_looks > 20 or bool(world.states())

    process.run(config.load(flags=flags), is_stopping)
    assert world.steps() == [(1, 0, "superseded", 1), (2, 0, "open", 2)]
    assert (world.states(), world.files()) == ({2: "candidate"}, ["v000002"])
    assert world.rows_of(2) == sorted(names)
    world.store.verify("agent", 2)
    world.promote(2, 0)
    assert set(world.spent().values()) == {2}
    with world.journal.read() as session:
        assert session.query(VersionRow).count() == 1


def test_a_step_that_a_red_monitor_refuses_publishes_nothing_and_pauses_learning(world: World) -> None:
    def red(work: Work) -> StepResult:
        reading = {"level": "red", "value": 9.0, "why": "too far"}
        return StepResult(
            False, (), (), {"kl": 9.0}, monitors={"kl": reading}, level="red", reason="kl is red: too far"
        )

    world.add(5)
    loop = world.learner(world.trainer, monitors="act")
    world.trainer.take = red  # type: ignore[method-assign]
    assert loop.run_once()
    assert world.steps() == [(1, 0, "superseded", 1)] and world.states() == {} and world.files() == []
    assert set(world.spent().values()) == {None}  # the rows come once more
    with world.journal.read() as session:
        step = session.query(StepRow).one()
        assert (step.reason, step.level, step.monitors["kl"]["level"]) == ("kl is red: too far", "red", "red")
    assert world.ledger.is_paused() and not loop.run_once()
    world.ledger.pause(is_paused=False)
    assert loop.run_once()
    assert world.steps()[1] == (2, 0, "failed", 2)


def test_rows_that_a_step_did_not_admit_have_a_reason(world: World) -> None:
    names = world.add(6)
    with world.journal.write() as session:
        first, second = (session.get_one(InteractionRow, name) for name in names[:2])
        second.prompt_rest, second.token_ids, second.logprobs = first.prompt_rest, first.token_ids, first.logprobs
    assert world.loop.run_once()
    with world.journal.read() as session:
        assert session.query(SampleRow).filter_by(interaction_id=names[1]).one().skipped == "duplicated"


def test_a_right_reply_is_trained_if_an_objective_uses_it_and_is_reproduced(world: World) -> None:
    names = world.add(5)
    add_feedback(world.journal, names[0], None, feedback_id="right", demonstration="7 8", created_at=9.0)
    with world.journal.write() as session:
        settle(session, names[0])
    without = {"sft_weight": 0.0, "n_examples": 0}
    assert world.learner(**without).run_once()
    with world.journal.read() as session:
        assert "right" not in session.query(SampleRow).filter_by(interaction_id=names[0]).one().record_ids
    world.refuse(1)
    world.add(5)
    add_feedback(world.journal, "t5", None, feedback_id="other", demonstration="7 8", created_at=9.0)
    forget_the_dead(world)
    with_right = {"sft_weight": 1.0, "replay_rows": 0}
    assert world.learner(world.make_trainer(**SETTINGS, **with_right), **with_right).run_once()
    with world.journal.read() as session:
        assert "other" in session.query(SampleRow).filter_by(interaction_id="t5").one().record_ids
        step = session.query(StepRow).filter_by(version=2).one()
    assert step.metrics["sft/n_rows"] == 1.0


def test_a_right_reply_alone_makes_a_turn_ready(journal: Journal, world: World) -> None:
    (name,) = world.add(1)
    with journal.write() as session:
        session.query(FeedbackRow).delete()
        settle(session, name)
    assert world.ledger.count_ready()[0] == 0
    add_feedback(journal, name, None, feedback_id="right", correction="7 8")
    with journal.write() as session:
        settle(session, name)
    assert world.ledger.count_ready()[0] == 1
    (ready,) = world.ledger.load([name], with_right=True)
    assert ready.reward is None and ready.right is not None and ready.right.kind == "correction"
    assert world.ledger.load([name])[0].right is None
