"""Good replies: which turns give them, that later steps learn them again, and that no user dominates them."""

from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from world import Make, World

from burnish.journal import Journal
from burnish.learner.data import good_replies
from burnish.learner.data.rows import Text
from burnish.learner.data.samples import RightKind, Sample
from burnish.learner.run.trainer import Trainer
from burnish.learner.run.work import Work
from tests.turns import add_feedback

Samples = Callable[..., list[Sample]]
Trained = Callable[..., Trainer]
RIGHT = array("i", [40, 41, 42, 0])
OFF = {"rl_weight": 0.0, "distill_weight": 0.0, "kl_weight": 0.0, "anchor_weight": 0.0}


def test_they_are_praised_replies_and_what_people_wrote_the_last_first(make_samples: Samples) -> None:
    samples = make_samples(4)  # the odd ones are praised
    samples[2] = replace(samples[2], demonstration_ids=RIGHT, right_kind=RightKind.DEMONSTRATION)
    found = good_replies.of_step(samples)
    assert [each.interaction_id for each in found] == ["chatcmpl-3", "chatcmpl-2", "chatcmpl-1"]
    assert found[0].completion_ids == samples[3].completion_ids
    assert found[1].completion_ids == RIGHT


def test_every_user_has_one_before_one_has_two(make_samples: Samples) -> None:
    samples = [replace(s, reward=1.0, user="bo" if i else "ana") for i, s in enumerate(make_samples(5))]
    found = good_replies.balanced(good_replies.of_step(samples), 3)
    assert [each.interaction_id for each in found] == ["chatcmpl-4", "chatcmpl-0", "chatcmpl-3"]


def test_a_later_step_learns_them_again(make_trainer: Trained, make_samples: Samples) -> None:
    trainer = make_trainer(**OFF | {"sft_weight": 1.0, "replay_rows": 2})
    samples = [replace(s, demonstration_ids=RIGHT, right_kind=RightKind.DEMONSTRATION) for s in make_samples(1)]
    praised = [replace(s, interaction_id=f"old-{i}", reward=1.0) for i, s in enumerate(make_samples(3))]
    old = good_replies.of_step(praised)
    texts = [Text(each.prompt_ids, each.completion_ids) for each in old]
    before = [float(found.sum()) for found in trainer.policy.logprobs(texts)]
    result = trainer.step(samples, good=old)
    after = [float(found.sum()) for found in trainer.policy.logprobs(texts)]
    assert result.trained == (samples[0].interaction_id,), "an earlier turn is not trained a second time"
    assert result.metrics["sft/n_rows"] == 3.0, "the step's own and two of the three earlier ones"
    assert after[0] > before[0] and after[1] > before[1]


def test_a_step_without_a_reply_of_its_own_to_learn_from_is_none(make_trainer: Trained, make_samples: Samples) -> None:
    trainer = make_trainer(**OFF | {"sft_weight": 1.0})
    old = good_replies.of_step([replace(s, interaction_id="old", reward=1.0) for s in make_samples(1)])
    result = trainer.step(make_samples(2, hints=False), good=old)
    assert not result.is_update and len(result.idle) == 2


def test_the_user_cap_counts_them(make_trainer: Trained, make_samples: Samples) -> None:
    """One user praises everything, three others speak once: the many weigh no more than a quarter."""
    trainer = make_trainer(**OFF | {"sft_weight": 1.0, "user_cap": 0.25, "session_cap": 1.0, "new_users_cap": 1.0})
    own = [
        replace(s, user=f"user {i}", session=None, demonstration_ids=RIGHT, right_kind=RightKind.DEMONSTRATION)
        for i, s in enumerate(make_samples(3))
    ]
    many = [replace(s, interaction_id=f"old-{i}", reward=1.0, user="many") for i, s in enumerate(make_samples(12))]
    prepared = trainer._prepare(Work(own, good=good_replies.of_step(many)))
    weights = {id(row): row.weight * row.n_tokens for row in prepared.used if "supervised" in row.streams}
    again = [row for row in prepared.used if getattr(row, "earlier", None) is not None]
    share = sum(weights[id(row)] for row in again) / sum(weights.values())
    assert again and share == pytest.approx(0.25, abs=0.02)


def test_the_shuffled_control_sees_none(make_trainer: Trained, make_samples: Samples) -> None:
    trainer = make_trainer(sft_weight=1.0, shuffle_rewards=True)
    old = good_replies.of_step([replace(s, interaction_id="old", reward=1.0) for s in make_samples(1)])
    assert trainer.step(make_samples(6), good=old).metrics["sft/n_rows"] == 0.0


def test_the_journal_gives_what_earlier_steps_had(journal: Journal, tmp_path: Path, make_trainer: Make) -> None:
    world = World(journal, tmp_path, make_trainer)
    world.add(4)
    add_feedback(journal, "t0", -1.0, feedback_id="wrote", demonstration="Better.")
    assert world.loop.run_once()
    world.promote(1, 0)
    world.add(4)
    assert world.loop.run_once()
    assert world.store.verify("agent", 2)["good"], "the manifest names what the second step learned again"
    tokenizer = world.loop._trainer.policy.tokenizer
    with journal.read() as session:
        found = good_replies.earlier(session, "agent", 8, tokenizer)
        again = good_replies.read(session, [each.name for each in found], tokenizer)
    names = dict(each.name for each in found)

    assert names["t0"] == "wrote"
    assert tokenizer.decode(list({e.interaction_id: e for e in found}["t0"].completion_ids)).startswith("Better.")
    assert again == found
    assert len(found) > 1 and set(names.values()) == {"wrote", None}
