"""Examples: which good replies the teacher reads, and that it never teaches a reply that it has read."""

from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from burnish.learner.data import examples, good_replies
from burnish.learner.data.good_replies import GoodReply
from burnish.learner.data.rows import Row
from burnish.learner.data.samples import Sample
from burnish.learner.model.policy import Policy
from burnish.learner.objectives.distillation import Distillation
from burnish.learner.run.trainer import Trainer

Samples = Callable[..., list[Sample]]
Make = Callable[..., Trainer]


def names(found: Any) -> list[str]:
    return [each.interaction_id.removeprefix("chatcmpl-") for each in found]


def chosen_of(samples: list[Sample], n: int) -> list[GoodReply]:
    return examples.select(good_replies.of_step(samples), n)


def old(samples: list[Sample]) -> list[GoodReply]:
    """The samples as praised replies of an earlier step."""
    praised = [replace(s, interaction_id=f"old-{i}", reward=1.0) for i, s in enumerate(samples)]
    return good_replies.of_step(praised)[::-1]


def by(sample: Sample, user: str) -> Sample:
    return replace(sample, user=user)


def test_the_newest_praised_replies_are_chosen_and_the_steps_own_first(make_samples: Samples) -> None:
    samples = make_samples(8)  # the odd ones are praised
    own, earlier = good_replies.of_step(samples), old(make_samples(3))
    assert names(examples.select([*own, *earlier], 3)) == ["7", "5", "3"]
    assert names(examples.select([*own, *earlier], 6)) == ["7", "5", "3", "1", "old-0", "old-1"]
    assert names(examples.select([own[0], own[0]], 4)) == ["7"], "and none twice"
    assert examples.select([*own, *earlier], 0) == []


def test_every_user_is_an_example_before_one_is_twice(make_samples: Samples) -> None:
    samples = [by(sample, "bo" if i < 2 else "ana") for i, sample in enumerate(make_samples(8))]
    assert names(chosen_of(samples, 3)) == ["7", "1", "5"]


@pytest.mark.parametrize(
    "changes",
    [
        {"completion_ids": array("i", [5] * (examples.MAX_TOKENS + 1))},
        {"tools": ({"type": "function"},)},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 2},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
        {"reward": 0.2},
        {"reward": None},
    ],
)
def test_what_is_no_example(make_samples: Samples, changes: dict[str, Any]) -> None:
    samples = make_samples(6)
    samples[5] = replace(samples[5], **changes)
    assert names(chosen_of(samples, 4)) == ["3", "1"]


def test_the_teacher_reads_them_before_the_conversation_but_not_before_their_own(
    policy: Policy, make_samples: Samples
) -> None:
    samples = make_samples(6)
    chosen = chosen_of(samples, 2)
    found = examples.shown(samples, chosen, policy.tokenizer)
    for sample in found:
        if sample.interaction_id in {each.interaction_id for each in chosen}:
            assert sample.example_prompt_ids is None
            continue
        text = policy.tokenizer.decode(list(sample.example_prompt_ids or ()))
        places = [text.index(str(each.messages[-1]["content"])) for each in chosen]
        assert sorted(places, reverse=True) == places, "the newest stands nearest to the question"
        assert text.rindex(str(sample.messages[-1]["content"])) > max(places)
    assert sum(sample.example_prompt_ids is not None for sample in found) == 4
    assert examples.shown(samples, [], policy.tokenizer) == samples


def test_a_prompt_that_the_engine_rendered_otherwise_gets_no_examples(policy: Policy, make_samples: Samples) -> None:
    samples = make_samples(6)
    samples[0] = replace(samples[0], prompt_ids=array("i", [9, 9, 9, 9]))
    found = examples.shown(samples, chosen_of(samples, 2), policy.tokenizer)
    assert found[0].example_prompt_ids is None


def test_every_reply_is_taught_by_examples_instead_of_hints(make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer(n_examples=2, distill_teacher="base", rl_weight=0.0, kl_weight=0.0, anchor_weight=0.0)
    samples = make_samples(8)
    result = trainer.step(samples)
    assert result.metrics["n_examples"] == 2.0
    chosen = {each.interaction_id for each in chosen_of(samples, 2)}
    assert {*result.trained} == {sample.interaction_id for sample in samples} - chosen
    liked, *failures = sorted(samples, key=lambda sample: -(sample.reward or 0.0))[3:]
    assert liked.reward == 1.0 and len(failures) < 7 and all(sample.reward == -1.0 for sample in failures)
    with_one = make_trainer(n_examples=2, distill_teacher="base", rl_weight=0.0, kl_weight=0.0, anchor_weight=0.0)
    found = with_one.step([liked, *failures], good=old(samples))
    assert found.metrics["n_examples"] == 2.0 and {*found.trained} == {each.interaction_id for each in failures}


def test_one_of_eight_replies_has_to_be_good(make_samples: Samples) -> None:
    failures = make_samples(15, reward=-1.0)
    liked = [replace(s, interaction_id=f"liked-{i}") for i, s in enumerate(make_samples(2, reward=1.0))]
    assert good_replies.do_some_please([*failures[:14], *liked])
    assert not good_replies.do_some_please([*failures, liked[0]])
    assert not good_replies.do_some_please(failures)
    assert good_replies.do_some_please(failures[:7]), "a few dislikes say little"


def test_a_user_who_dislikes_everything_counts_as_one(make_samples: Samples) -> None:
    loud = [replace(s, user="loud") for s in make_samples(15, reward=-1.0)]
    liked = make_samples(2, reward=1.0)
    others = [replace(s, user=f"user {i}", interaction_id=f"liked-{i}") for i, s in enumerate(liked)]
    assert good_replies.do_some_please([*loud, others[0]])
    assert good_replies.do_some_please([*loud, *others])
    assert not good_replies.do_some_please(loud)


def test_where_nothing_is_good_any_more_earlier_good_replies_are_no_examples(
    make_trainer: Make, make_samples: Samples
) -> None:
    """People want something else now. What they say teaches, and what was good before is only learned again."""
    trainer = make_trainer(n_examples=2, distill_teacher="base", rl_weight=0.0, kl_weight=0.0, anchor_weight=0.0)
    samples = make_samples(16)
    failures = [sample for sample in samples if sample.reward == -1.0]
    found = trainer.step(failures, good=old(samples))
    assert found.metrics["n_examples"] == 0.0
    assert {*found.trained} == {each.interaction_id for each in failures if each.hint}


def test_the_shuffled_control_does_not_see_earlier_praise(make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer(n_examples=6, shuffle_rewards=True)
    samples = make_samples(6)
    earlier = old(make_samples(4))
    assert trainer.step(samples, good=earlier).metrics["n_examples"] == 3.0  # its own alone


def test_examples_carry_no_refusal(make_trainer: Make, make_samples: Samples) -> None:
    trainer, objective = make_trainer(), Distillation(top_k=20)
    samples = [replace(s, example_prompt_ids=s.prompt_ids) for s in make_samples(4, reward=-1.0)]
    rows = [Row.of(sample) for sample in samples]
    assert objective.stamp(rows, trainer.policy)["n_rows"] == 4.0
    assert not objective.refusals
