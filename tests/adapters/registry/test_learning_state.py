"""The sentence about learning: it names what is going on, or why nothing trains and what would change it."""

import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import col

from burnish import config
from burnish.adapters.evidence.base_answers import BaseRecord
from burnish.adapters.registry.learning_state import LearningState, learning_state
from burnish.adapters.serving.prepare import prepare
from burnish.journal import judge_checks
from burnish.journal.hint_quorum import UNBACKED
from burnish.journal.tables import AgentRow, InteractionRow, SampleRow, StepRow, VersionRow
from burnish.records import Fitness
from tests.factories import interaction, user
from tests.model_dirs import model_dir
from tests.turns import add_turn


class World:
    """A prepared state directory in which the base has passed enough forgetting prompts."""

    def __init__(self, folder: Path, **flags: Any) -> None:
        self.settings = config.load(flags={"state_dir": str(folder), "learner.min_rows": 4, **flags})
        self.journal = prepare(self.settings)
        self.answered(128)

    def answered(self, n_passed: int, n_prompts: int = 400) -> None:
        BaseRecord.of(self.settings).write([3] * n_passed + [None] * (n_prompts - n_passed), n_prompts)

    def turns(self, n: int, *, is_ready: bool) -> None:
        for number in range(n):
            name = f"{is_ready}-{number}"
            fields = {"interaction_id": name, "ended_at": time.time()}
            add_turn(self.journal, interaction([user("hi")], **fields), is_ready=is_ready)

    def add(self, row: Any) -> None:
        with self.journal.write() as session:
            session.add(row)

    def agent(self, **changes: Any) -> None:
        with self.journal.write() as session:
            session.connection().execute(update(AgentRow).where(col(AgentRow.name) == "agent").values(**changes))

    def state(self) -> LearningState:
        with self.journal.read() as session:
            return learning_state(session, self.settings, "agent")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def version(number: int, state: str, reason: str | None = None) -> VersionRow:
    return VersionRow(
        agent="agent", version=number, parent=0, digest="d", state=state, reason=reason, evidence={}, created_at=0.0
    )


def test_it_says_how_many_ratings_the_next_step_waits_for(world: World) -> None:
    assert world.state() == LearningState("waits for 4 more rated replies (0 of 4)")
    world.turns(3, is_ready=True)
    assert world.state().sentence == "waits for 1 more rated replies (3 of 4)"


def test_rated_replies_that_were_cut_are_told(world: World) -> None:
    world.turns(3, is_ready=True)
    with world.journal.write() as session:
        cut = update(InteractionRow).where(col(InteractionRow.interaction_id) != "True-0")
        session.connection().execute(cut.values(skip_reason="truncated"))
    assert world.state().sentence == (
        "waits for 3 more rated replies (1 of 4); 2 more do not count, because their length limit cut them: raise "
        "max_tokens, or add a comment"
    )


def test_a_comment_on_a_cut_reply_that_is_not_taught_is_told_as_what_it_is(world: World) -> None:
    world.turns(3, is_ready=True)
    with world.journal.write() as session:
        cut = update(InteractionRow).where(col(InteractionRow.interaction_id) != "True-0")
        session.connection().execute(cut.values(skip_reason=UNBACKED))
    assert world.state().sentence == (
        "waits for 3 more rated replies (1 of 4); 2 hints were not taught, because fewer than 2 users with a name have "
        "said so: make keys with --user, or set learner.hint_quorum = 1 if you are alone"
    )


def test_a_full_batch_is_due(world: World) -> None:
    world.turns(5, is_ready=True)
    assert world.state().sentence == "a step on 5 rated replies is due"


def test_a_step_and_a_trial_are_named(world: World) -> None:
    world.add(StepRow(agent="agent", version=7, parent=0, outcome="open", metrics={}, started_at=time.time() - 3))
    assert world.state().sentence == "v7 is being trained, for 3 s"
    with world.journal.write() as session:
        session.connection().execute(update(StepRow).values(outcome="published"))
    world.add(version(7, "candidate"))
    assert world.state().sentence.startswith("v7 is on trial, for ")


def test_a_refusal_is_told_with_its_reason(world: World) -> None:
    world.add(version(3, "refused", "unlearned 9 of 128 forgetting prompts"))
    said = world.state().sentence
    assert said.startswith("v3 was refused: unlearned 9 of 128 forgetting prompts; the next step starts from the live")
    assert said.endswith("waits for 4 more rated replies (0 of 4)")


def test_after_a_refusal_for_what_it_had_become_the_next_step_is_shorter(world: World) -> None:
    refused = version(3, "refused", "unlearned 9 of 128 forgetting prompts")
    refused.evidence = {"retention": {"n": 128, "n_lost": 9}}
    world.add(refused)
    assert "the next step starts from the live version again and is shorter" in world.state().sentence


@pytest.mark.parametrize(
    ("changes", "said", "is_alarm"),
    [
        ({"is_paused": True}, "learning is paused; `burnish learner resume` continues it", True),
        ({"held": "by hand"}, "learning is held: by hand; `burnish agents end-hold` ends it", False),
    ],
)
def test_a_pause_and_a_hold_name_the_command_that_ends_them(
    world: World, changes: dict[str, Any], said: str, is_alarm: bool
) -> None:
    world.agent(**changes)
    assert world.state() == LearningState(said, is_alarm)


def test_learning_that_is_off_says_so(tmp_path: Path) -> None:
    assert World(tmp_path, **{"learner.enabled": False}).state() == LearningState(
        "learning is off (learner.enabled = false)"
    )


def test_without_ratings_and_without_a_fit_judge_it_names_the_remedy(world: World) -> None:
    world.turns(6, is_ready=False)
    assert "judge" not in world.state().sentence
    with world.journal.write() as session:
        judge_checks.file(session, "j", "base", "", "g")
        judge_checks.conclude(session, ["j"], Fitness.UNFIT, "κ is 0", {})
    said = world.state().sentence
    assert "6 replies since the last step have no rating, and the judge is unfit; rate replies" in said
    with world.journal.write() as session:
        judge_checks.conclude(session, ["j"], Fitness.FIT, "", {})
    assert "judge" not in world.state().sentence


def test_it_alarms_when_the_traffic_should_have_sufficed(world: World) -> None:
    world.turns(31, is_ready=False)
    assert not world.state().is_alarm
    world.turns(1, is_ready=True)
    found = world.state()
    assert (
        found.is_alarm and "32 replies have come since the last step; `burnish turns list` shows why" in found.sentence
    )


def test_a_base_that_passes_too_few_prompts_of_a_file_of_ones_own_is_an_alarm(world: World) -> None:
    world.answered(40)
    found = world.state()
    assert found.is_alarm and "the base passes only 40 of 400 forgetting prompts, and 64 are needed" in found.sentence


@pytest.mark.parametrize(
    ("n_comparable", "is_alarm", "said"),
    [
        (None, False, "the base passes only 3 of 495 forgetting prompts (64 are needed), and is being asked for"),
        (96, False, "so the gate compares predictions with the base's: it sees a collapse, but no lost ability; name"),
        (10, True, "no version can go live: the base passes only 3 of 495 forgetting prompts, and the engine accepts"),
    ],
)
def test_a_base_that_passes_too_few_of_the_general_prompts_is_told_with_what_follows(
    tmp_path: Path, n_comparable: int | None, is_alarm: bool, said: str
) -> None:
    world = World(tmp_path, **{"engine.model": str(model_dir(tmp_path / "model"))})
    BaseRecord.of(world.settings).write([2] * 3 + [None] * 492, 495, n_comparable)
    found = world.state()
    assert found.is_alarm is is_alarm and said in found.sentence
    assert is_alarm or found.sentence.startswith("waits for 4 more rated replies (0 of 4); the base passes only 3")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            {"template": ""},
            "the model has no chat template, so chat requests are refused and nothing is learned; add "
            "chat_template.jinja to its directory, or take an instruction-tuned model",
        ),
        (
            {"layer": "conv"},
            "no linear layer that LoRA can adapt was found, so the base answers and nothing is learned; take a model",
        ),
        (
            {"architecture": "GPT2LMHeadModel", "layer": "c_attn"},
            "vLLM serves GPT2LMHeadModel without LoRA adapters, so the base answers and nothing is learned; take a",
        ),
    ],
)
def test_a_model_that_cannot_be_trained_is_told_with_the_remedy(
    tmp_path: Path, made: dict[str, str], said: str
) -> None:
    found = World(tmp_path, **{"engine.model": str(model_dir(tmp_path / "model", **made))}).state()
    assert found.is_alarm and found.sentence.startswith(said)


def test_prompts_that_are_still_asked_are_mentioned(world: World) -> None:
    BaseRecord.of(world.settings).write([3, 3, None], 400)
    found = world.state()
    assert not found.is_alarm and found.sentence.endswith("forgetting prompts (2 of 96 found)")


@pytest.mark.parametrize(("n", "words"), [(1, "1 hint was not taught"), (3, "3 hints were not taught")])
def test_hints_that_wait_for_a_second_user_are_named(world: World, n: int, words: str) -> None:
    world.add(StepRow(step_id=1, agent="agent", version=1, parent=0, outcome="published", metrics={}, started_at=0.0))
    assert "hint" not in world.state().sentence
    for number in range(n):
        world.add(SampleRow(step_id=1, interaction_id=f"t{number}", record_ids=[], hint="x", hint_status=UNBACKED))
    assert words in world.state().sentence and "learner.hint_quorum" in world.state().sentence
