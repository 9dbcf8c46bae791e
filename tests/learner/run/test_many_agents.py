"""Several agents, one learner: each in turn, on its own rows alone, as if it had the base model to itself."""

import errno
import gc
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError
from tiny import interaction

from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import lifecycle
from burnish.config import Settings, for_agent
from burnish.errors import ConfigError, LearnerError
from burnish.journal import Journal
from burnish.journal.tables import AgentRow, InteractionRow, SampleRow, StepRow, VersionRow
from burnish.learner.model import adapter_file
from burnish.learner.model.policy import Policy
from burnish.learner.run.ledger import Ledger
from burnish.learner.run.loop import Loop
from burnish.learner.run.scheduler import Scheduler
from burnish.learner.run.trainer import Trainer
from burnish.learner.run.trainer_pool import LoadedVersions, TrainerPool
from tests.turns import add_feedback, add_turn

LEARNER: dict[str, Any] = {
    "learner.rank": 4,
    "learner.learning_rate": 1e-2,
    "learner.device": "cpu",
    "learner.min_rows": 4,
    "learner.max_rows": 8,
    "learner.recipe": {"check_hints": False},
    "learner.monitors": "watch",
}
Load = Callable[[Settings], Policy]


class World:
    """Agents of two tenants in one journal, and the one learner that trains them."""

    def __init__(self, journal: Journal, folder: Path, base_dir: Path, names: dict[str, str]) -> None:
        self.journal = journal
        self.store = AdapterStore(folder / "adapters")
        self.names = names
        self.n_loaded = 0
        self.base_dir = base_dir
        self.settings = for_agent(Settings(state_dir=folder), LEARNER)
        self.trainers = TrainerPool(self._policy)
        self.loops: dict[str, Loop] = {}
        self.n_turns: dict[str, int] = dict.fromkeys(names, 0)
        self.tokenizer = Policy.load(base_dir, rank=4, alpha=8, seed=1, device="cpu").tokenizer
        with journal.write() as session:
            for name, tenant in names.items():
                lifecycle.ensure_agent(session, name, tenant)
        self.scheduler = Scheduler(self.settings, journal, self._loop)

    def _policy(self, settings: Settings) -> Policy:
        self.n_loaded += 1
        return Policy.load(
            self.base_dir, rank=settings.recipe.rank, alpha=settings.recipe.lora_alpha, seed=1, device="cpu"
        )

    def _loop(self, settings: Settings, agent: str) -> Loop:
        trainer, loaded = self.trainers.of(settings)
        self.loops[agent] = Loop(Ledger(self.journal, agent), self.store, trainer, settings.recipe, None, None, loaded)
        return self.loops[agent]

    def add(self, agent: str, n: int = 4) -> None:
        """`n` rated turns, the same for the same agent and number, whatever came in between."""
        for _ in range(n):
            i, self.n_turns[agent] = self.n_turns[agent], self.n_turns[agent] + 1
            name = f"{agent}-{i}"
            text = f"copy {i} {len(agent)}"
            turn = interaction(self.tokenizer, text, interaction_id=name, request_id=name, agent=agent)
            turn = replace(turn, tenant=self.names[agent], version=0, ended_at=float(i))
            add_turn(self.journal, turn, is_ready=True)
            add_feedback(self.journal, name, 1.0 if i % 2 else -1.0)

    def decide(self, agent: str, *, is_good: bool = True) -> None:
        """The gate's verdict on the agent's candidate, if there is one."""
        with self.journal.write() as session:
            live = lifecycle.alias(session, agent) or 0
            for row in lifecycle.versions(session, agent):
                if row.state == "candidate" and is_good:
                    lifecycle.promote(session, agent, row.version, expected=live, actor="gate")
                elif row.state == "candidate":
                    lifecycle.refuse(session, agent, row.version, reason="no", evidence={})

    def digests(self, agent: str) -> list[str]:
        return [
            str(self.store.verify(agent, number)["files"]["adapter_model.safetensors"])
            for number in self.store.versions(agent)
        ]

    def spent(self) -> dict[str, set[str]]:
        """The users behind each agent's steps, by tenant and agent."""
        with self.journal.read() as session:
            steps = {row.step_id: row.agent for row in session.scalars(select(StepRow))}
            found: dict[str, set[str]] = {}
            for sample in session.scalars(select(SampleRow)):
                turn = session.get_one(InteractionRow, sample.interaction_id)
                found.setdefault(steps[sample.step_id], set()).add(f"{turn.tenant}/{turn.agent}")
            return found


@pytest.fixture
def make(journal: Journal, tmp_path: Path, base_dir: Path) -> Callable[..., World]:
    return lambda **names: World(journal, tmp_path, base_dir, names or {"a": "default", "b": "default"})


def test_each_agent_steps_in_turn_on_one_base_model(make: Callable[..., World]) -> None:
    world = make(a="default", b="default", c="other")
    for agent in ("a", "b", "c"):
        world.add(agent, 20)
    assert world.scheduler.run_once()
    assert world.n_loaded == 1
    assert {agent: world.store.versions(agent) for agent in "abc"} == {"a": [1], "b": [1], "c": [1]}
    assert not world.scheduler.run_once()  # each waits for its own candidate
    world.decide("b")
    assert world.scheduler.run_once()
    assert {agent: world.store.versions(agent) for agent in "abc"} == {"a": [1], "b": [1, 2], "c": [1]}


def test_an_agent_among_others_learns_the_same_bits_as_alone(
    make: Callable[..., World], tmp_path: Path, base_dir: Path
) -> None:
    among = make(a="default", b="other")
    for _ in range(3):
        for agent in ("a", "b"):
            among.add(agent)
        assert among.scheduler.run_once()
        among.decide("a")
        among.decide("b", is_good=False)
    (tmp_path / "alone").mkdir()
    other = Journal.open(f"sqlite:///{tmp_path / 'alone.db'}")
    alone = World(other, tmp_path / "alone", base_dir, {"a": "default"})
    for _ in range(3):
        alone.add("a")
        assert alone.scheduler.run_once()
        alone.decide("a")
    other.close()
    assert among.digests("a") == alone.digests("a")
    assert len(set(among.digests("a"))) == 3


@pytest.mark.parametrize("seed", range(6))
def test_no_row_of_one_agent_or_tenant_trains_another(make: Callable[..., World], seed: int) -> None:
    drawn = random.Random(seed)
    world = make(a="default", b="default", c="other")
    for _ in range(25):
        agent = drawn.choice("abc")
        match drawn.randrange(4):
            case 0 | 1:
                world.add(agent, drawn.randint(1, 5))
            case 2:
                world.scheduler.run_once()
            case 3:
                world.decide(agent, is_good=drawn.random() < 0.7)
    spent = world.spent()
    assert spent
    assert all(rows == {f"{world.names[agent]}/{agent}"} for agent, rows in spent.items())
    with world.journal.read() as session:
        names = [sample.interaction_id for sample in session.scalars(select(SampleRow))]
    assert len(names) == len(set(names))


def test_an_agents_own_settings_decide_when_it_learns(make: Callable[..., World]) -> None:
    world = make()
    with world.journal.write() as session:
        session.get_one(AgentRow, "a").settings = {"learner.min_rows": 2}
        session.get_one(AgentRow, "b").settings = {"learner.min_rows": 12}
    for agent in ("a", "b"):
        world.add(agent, 4)
    world.scheduler.run_once()
    assert (world.store.versions("a"), world.store.versions("b")) == ([1], [])
    with world.journal.write() as session:
        session.get_one(AgentRow, "b").settings = {"learner.min_rows": 4}
    world.scheduler.look_again()
    world.scheduler.run_once()
    assert world.store.versions("b") == [1]
    assert world.n_loaded == 1


def test_another_rank_is_another_policy_and_only_an_agent_with_too_high_a_rank_is_left_out(
    make: Callable[..., World], capsys: pytest.CaptureFixture[str]
) -> None:
    world = make(a="default", b="default", c="default")
    with world.journal.write() as session:
        session.get_one(AgentRow, "b").settings = {"learner.rank": 8}
        session.get_one(AgentRow, "c").settings = {"learner.rank": 64}
    for agent in "abc":
        world.add(agent)
    for _ in range(2):
        world.scheduler.look_again()
        world.scheduler.run_once()
    assert world.n_loaded == 2
    assert [world.store.manifest(agent, 1)["rank"] for agent in "ab"] == [4, 8]
    assert world.store.versions("c") == []
    assert capsys.readouterr().out.count("raise engine.max_lora_rank") == 1


def test_a_paused_agent_delays_no_other(make: Callable[..., World]) -> None:
    world = make()
    with world.journal.write() as session:
        session.get_one(AgentRow, "a").is_paused = True
    for agent in ("a", "b"):
        world.add(agent)
    world.scheduler.run_once()
    assert (world.store.versions("a"), world.store.versions("b")) == ([], [1])


def test_a_personal_agent_continues_from_its_branch_once_it_has_rows(make: Callable[..., World]) -> None:
    world = make(a="default")
    world.add("a")
    world.scheduler.run_once()
    world.decide("a")
    with world.journal.write() as session:
        lifecycle.ensure_agent(session, "a.u-000000000001")
        session.get_one(AgentRow, "a.u-000000000001").parent = "a"
    branch(world, "a.u-000000000001")
    world.scheduler.look_again()
    world.scheduler.run_once()
    assert set(world.loops) == {"a"}
    world.names["a.u-000000000001"], world.n_turns["a.u-000000000001"] = "default", 0
    world.add("a.u-000000000001")
    world.scheduler.look_again()
    assert world.scheduler.run_once()
    assert world.store.manifest("a.u-000000000001", 2)["parent"] == 1
    assert world.store.versions("a") == [1]


def branch(world: World, name: str) -> None:
    """The parent's version 1 as the agent's own, as the swapper makes it."""
    facts = world.store.manifest("a", 1)
    with world.store.aside(name, 1) as directory:
        for file in world.store.path("a", 1).iterdir():
            if file.name != "manifest.json":
                (directory / file.name).write_bytes(file.read_bytes())
        world.store.publish(name, 1, directory, facts)
    with world.journal.write() as session:
        row = {"agent": name, "version": 1, "parent": 1, "parent_agent": "a", "origin": "branch", "digest": "d"}
        session.add(VersionRow(**row, state="candidate", evidence={}, created_at=0.0))
        session.flush()
        lifecycle.promote(session, name, 1, expected=0, actor="personal")


def test_a_bad_overlay_is_a_readable_error() -> None:
    settings = Settings()
    assert for_agent(settings, {}) == settings
    assert for_agent(settings, {"learner.min_rows": 3}).learner.min_rows == 3
    assert settings.learner.min_rows != 3
    with pytest.raises(ConfigError, match=r"learner\.min_row'.*did you mean 'learner\.min_rows'"):
        for_agent(settings, {"learner.min_row": 3})
    with pytest.raises(ConfigError, match=r"learner\.min_rows"):
        for_agent(settings, {"learner.min_rows": 0})


def own(world: World, agent: str, **settings: object) -> None:
    with world.journal.write() as session:
        session.get_one(AgentRow, agent).settings = {key.replace("__", "."): value for key, value in settings.items()}
    world.scheduler.look_again()


@pytest.mark.parametrize(
    "settings",
    [
        {"learner__anchors": "/dev/zero"},
        {"gate__forgetting_prompts": "/nonexistent"},
        {"learner__recipe.num_iterations": 1_000_000},
        {"learner__recipe.policy_loss": "gspo", "learner__recipe.correction": "token_tis"},
        {"learner__recipe.no_such": 1},
    ],
)
def test_settings_that_an_earlier_release_stored_are_one_agents_trouble(
    make: Callable[..., World], settings: dict[str, object]
) -> None:
    world = make(a="default", b="other")
    own(world, "a", **settings)
    for agent in "ab":
        world.add(agent)
    assert world.scheduler.run_once()
    assert {agent: world.store.versions(agent) for agent in "ab"} == {"a": [], "b": [1]}


def test_an_agent_that_cannot_be_set_up_is_left_out_and_the_others_go_on(
    make: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make(a="default", b="other")
    own(world, "a", learner__min_rows=2)
    set_up = world._loop

    def refuse(settings: Settings, agent: str) -> Loop:
        if agent == "a":
            raise FileNotFoundError("/nonexistent")
        return set_up(settings, agent)

    monkeypatch.setattr(world.scheduler, "_make", refuse)
    for agent in "ab":
        world.add(agent)
    assert world.scheduler.run_once()
    assert {agent: world.store.versions(agent) for agent in "ab"} == {"a": [], "b": [1]}


def test_an_agent_whose_step_breaks_rests_until_its_settings_change_and_the_others_go_on(
    make: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make(a="default", b="other")
    for agent in "ab":
        world.add(agent, 8)
    train, n_tried = Loop._train, []

    def run_out(self: Loop, work: Any) -> Any:
        if self._ledger.agent == "a":
            n_tried.append(1)
            if len(n_tried) == 1:
                raise MemoryError("no room for so many tokens")
        return train(self, work)

    monkeypatch.setattr(Loop, "_train", run_out)
    assert world.scheduler.run_once()
    world.scheduler.look_again()
    world.scheduler.run_once()
    assert (len(n_tried), world.store.versions("a"), world.store.versions("b")) == (1, [], [1])
    own(world, "a", learner__max_rows=4)
    assert world.scheduler.run_once()
    assert (len(n_tried), len(world.store.versions("a"))) == (2, 1)


def test_a_journal_that_goes_away_in_mid_step_costs_no_base_model_and_no_row(
    make: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make(a="default")
    world.add("a")
    announce = Ledger.announce
    naps: list[float] = []

    def goes_away(self: Ledger, *arguments: Any) -> None:
        monkeypatch.setattr(Ledger, "announce", announce)
        raise OperationalError("INSERT", {}, Exception("the connection was closed"))

    monkeypatch.setattr(Ledger, "announce", goes_away)
    monkeypatch.setattr("burnish.learner.run.scheduler.time.sleep", naps.append)
    world.scheduler.run_forever(lambda: len(naps) > 1)
    with world.journal.read() as session:
        steps = [(row.version, row.outcome) for row in session.scalars(select(StepRow))]
    assert steps == [(1, "withdrawn"), (2, "open")]  # version 2 waits for its trial
    assert (world.n_loaded, world.store.versions("a")) == (1, [2])


def test_a_disk_that_stays_full_spends_no_row(make: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that cannot be written is no fault of its rows, however often it is tried."""
    world = make(a="default")
    world.add("a")
    write, naps = adapter_file.write_tensors, list[float]()

    def has_no_room(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 4:
            monkeypatch.setattr(adapter_file, "write_tensors", write)

    monkeypatch.setattr(adapter_file, "write_tensors", has_no_room)
    monkeypatch.setattr("burnish.learner.run.scheduler.time.sleep", nap)
    world.scheduler.run_forever(lambda: len(naps) > 4)
    assert naps[:4] == [0.5, 1.0, 2.0, 4.0]
    with world.journal.read() as session:
        steps = [(row.outcome, row.attempt) for row in session.scalars(select(StepRow))]
    assert steps == [("withdrawn", 1)] * 4 + [("open", 1)]
    assert (world.n_loaded, world.store.versions("a")) == (1, [5])
    assert [path.name for path in (world.store.root / "a").iterdir()] == ["v000005"]  # nothing half-written is left


def test_what_breaks_the_only_agent_ends_the_process_as_before(
    make: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make(a="default")
    world.add("a", 8)

    def broken(self: Loop, work: Any) -> Any:
        raise RuntimeError("CUDA error: device-side assert")

    monkeypatch.setattr(Loop, "_train", broken)
    with pytest.raises(RuntimeError, match="CUDA"):
        world.scheduler.run_once()


def test_a_process_holds_the_base_model_a_few_times_at_most(make: Callable[..., World]) -> None:
    world = make()
    held = [world.trainers.of(for_agent(world.settings, {"learner.rank": rank}))[0] for rank in (1, 2, 3, 4)]
    with pytest.raises(LearnerError, match="4 forms of the adapter"):
        world.trainers.of(for_agent(world.settings, {"learner.rank": 5}))
    del held
    gc.collect()
    assert world.trainers.of(for_agent(world.settings, {"learner.rank": 5}))[0].policy is not None


def test_trainers_are_shared_by_agents_that_differ_only_in_timing(make: Callable[..., World]) -> None:
    world = make()
    trainers = world.trainers
    one, loaded = trainers.of(world.settings)
    assert trainers.of(for_agent(world.settings, {"learner.min_rows": 9})) == (one, loaded)
    other, same = trainers.of(for_agent(world.settings, {"learner.learning_rate": 2e-2}))
    assert isinstance(other, Trainer)
    assert other is not one
    assert other.policy is one.policy
    assert same is loaded
    assert isinstance(loaded, LoadedVersions)
