"""Which replies become samples, and what a sample holds."""

import json
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny import interaction
from transformers import AutoTokenizer

from burnish.learner.data.samples import Right, RightKind, Sample, Skipped, SkipReason, to_sample
from burnish.learner.data.teacher_prompts import learns_right_replies, render, reply_ends, right_reply
from burnish.learner.model.policy import Policy
from burnish.records import Reward, Sampling

FORCED = Sampling(is_constrained=True)
REWARD = Reward(1.0, "judge", ("j1",), None)
HINTED = Reward(-1.0, "user", ("f1", "j1"), "Use bold.")


@pytest.mark.parametrize(
    ("changes", "reward", "reason"),
    [
        ({"may_train": False}, REWARD, SkipReason.OPTED_OUT),
        ({"quarantine": "ids do not add up"}, REWARD, SkipReason.QUARANTINED),
        ({"logprobs": array("f", [-1.0])}, REWARD, SkipReason.QUARANTINED),
        ({"is_aborted": True}, REWARD, SkipReason.ABORTED),
        ({"finish_reason": "length"}, REWARD, SkipReason.TRUNCATED),
        ({"token_ids": array("i"), "logprobs": array("f")}, REWARD, SkipReason.EMPTY),
        ({"prompt_ids": array("i")}, REWARD, SkipReason.EMPTY),
        ({"logprobs": array("f", [-1.0, float("nan"), -1.0, -1.0])}, REWARD, SkipReason.BAD_LOGPROBS),
        ({"logprobs": array("f", [-1.0, float("-inf"), -1.0, -1.0])}, REWARD, SkipReason.BAD_LOGPROBS),
        ({"logprobs": array("f", [-1.0, 0.5, -1.0, -1.0])}, REWARD, SkipReason.BAD_LOGPROBS),
        ({"logprobs": array("f", [0.0] * 4)}, REWARD, SkipReason.BAD_LOGPROBS),
        ({"token_ids": array("i", [10, 300, 12, 0])}, REWARD, SkipReason.FOREIGN_IDS),
        ({"prompt_ids": array("i", [10, -1])}, REWARD, SkipReason.FOREIGN_IDS),
        ({"token_ids": array("i", [7, 8] * 40), "logprobs": array("f", [-1.0] * 80)}, REWARD, SkipReason.DEGENERATE),
        ({"finish_reason": "error"}, REWARD, SkipReason.ERROR),
        ({"finish_reason": "abort"}, REWARD, SkipReason.ERROR),
        ({}, None, SkipReason.NO_SIGNAL),
        ({}, replace(REWARD, value=0.0), SkipReason.NEUTRAL),
        ({"sampling": FORCED}, REWARD, SkipReason.NOT_CHOSEN),
        ({"sampling": Sampling(has_logit_bias=True)}, REWARD, SkipReason.NOT_CHOSEN),
        (
            {"sampling": FORCED, "prompt_ids": array("i", [7, 8])},
            HINTED,
            SkipReason.UNRENDERABLE,
        ),
    ],
)
def test_a_reply_that_cannot_teach_has_a_reason(
    policy: Policy, changes: dict[str, Any], reward: Reward | None, reason: SkipReason
) -> None:
    skipped = to_sample(interaction(policy.tokenizer, **changes), reward, policy.tokenizer, n_vocab=261)
    assert skipped == Skipped("chatcmpl-1", reason)


def test_a_sample_holds_the_engines_ids_and_the_rewards_records(policy: Policy) -> None:
    raw = interaction(policy.tokenizer, user="u")
    sample = to_sample(raw, HINTED, policy.tokenizer, session="s")
    assert isinstance(sample, Sample)
    assert (sample.prompt_ids, sample.completion_ids) == (raw.prompt_ids, raw.token_ids)
    assert sample.behaviour_logprobs == raw.logprobs
    assert (sample.has_ratio, sample.reward) == (True, -1.0)
    assert (sample.record_ids, sample.session, sample.user) == (("f1", "j1"), "s", "u")
    assert sample.hinted_prompt_ids is not None
    hinted = policy.tokenizer.decode(list(sample.hinted_prompt_ids))
    assert hinted == "<|user|>copy 1 2\n\n(Hint: Use bold.)<|end|><|assistant|>"


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0.0), Sampling(0.2, top_p=0.9), Sampling(repetition_penalty=1.1)]
)
def test_a_reply_teaches_however_the_client_sampled_it(policy: Policy, sampling: Sampling) -> None:
    sample = to_sample(interaction(policy.tokenizer, sampling=sampling), REWARD, policy.tokenizer)
    assert isinstance(sample, Sample) and sample.has_ratio


def test_a_constrained_reply_with_a_hint_is_distilled_without_a_ratio(policy: Policy) -> None:
    raw = interaction(policy.tokenizer, sampling=FORCED)
    sample = to_sample(raw, HINTED, policy.tokenizer)
    assert isinstance(sample, Sample)
    assert (sample.has_ratio, sample.hint) == (False, "Use bold.")


def test_engine_ids_are_kept_before_the_hint_even_if_the_rendering_differs(policy: Policy) -> None:
    """vLLM writes tools with its own fields. Only the text from the last user message on has to agree."""
    messages = [{"role": "user", "content": "a long enough question"}]
    theirs = [{"type": "function", "function": {"name": "f", "description": None, "parameters": {}}}]
    ours = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    prompt = array("i", render(policy.tokenizer, messages, theirs))
    raw = interaction(policy.tokenizer, messages=messages, tools=ours, prompt_ids=prompt)
    sample = to_sample(raw, HINTED, policy.tokenizer)
    assert isinstance(sample, Sample) and sample.hinted_prompt_ids is not None
    decoded = policy.tokenizer.decode(list(sample.hinted_prompt_ids))
    assert decoded == policy.tokenizer.decode(list(prompt)).replace("question", "question\n\n(Hint: Use bold.)")


def test_a_prompt_that_is_not_as_rendered_loses_its_hint_and_keeps_its_reward(policy: Policy) -> None:
    raw = interaction(policy.tokenizer, prompt_ids=array("i", [7, 8, 9]))
    sample = to_sample(raw, HINTED, policy.tokenizer)
    assert isinstance(sample, Sample)
    assert (sample.hint, sample.hinted_prompt_ids, sample.is_hint_lost, sample.reward) == (None, None, True, -1.0)


def test_text_parts_and_tool_arguments_are_rendered_as_vllm_does(policy: Policy) -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "content": "ok"},
    ]
    text = policy.tokenizer.decode(render(policy.tokenizer, messages, ()))
    assert text == '<|user|>one\ntwo<|end|><|assistant|>{"a": 1}<|end|><|tool|>ok<|end|><|assistant|>'
    raw = interaction(
        policy.tokenizer, messages=messages, prompt_ids=array("i", render(policy.tokenizer, messages, ()))
    )
    sample = to_sample(raw, HINTED, policy.tokenizer)
    assert isinstance(sample, Sample) and sample.hinted_prompt_ids is not None
    assert "two\n\n\n(Hint: Use bold.)<|end|>" in policy.tokenizer.decode(list(sample.hinted_prompt_ids))


CORRECTION = Right("3 4", RightKind.CORRECTION, "f9")


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.7), FORCED])
@pytest.mark.parametrize("reward", [None, REWARD, replace(REWARD, value=0.0)])
def test_a_right_reply_is_in_the_policys_own_ids_and_is_enough(
    policy: Policy, sampling: Sampling, reward: Reward | None
) -> None:
    sample = to_sample(interaction(policy.tokenizer, sampling=sampling), reward, policy.tokenizer, right=CORRECTION)
    assert isinstance(sample, Sample) and sample.demonstration_ids is not None
    assert policy.tokenizer.decode(list(sample.demonstration_ids)) == "3 4<|end|>"
    assert sample.right_kind is RightKind.CORRECTION and sample.record_ids[-1] == "f9"
    assert sample.reward == (reward.value if reward is not None else None)


@pytest.mark.parametrize(
    "changes", [{"prompt_ids": array("i", [7, 8, 9])}, {"messages": [{"role": "user", "content": "1"}, {"role": 2}]}]
)
def test_a_right_reply_that_the_template_does_not_allow_is_left_out(policy: Policy, changes: dict[str, Any]) -> None:
    raw = interaction(policy.tokenizer, **changes)
    assert to_sample(raw, None, policy.tokenizer, right=CORRECTION) == Skipped("chatcmpl-1", SkipReason.NO_SIGNAL)
    sample = to_sample(raw, REWARD, policy.tokenizer, right=CORRECTION)
    assert isinstance(sample, Sample)
    assert (sample.demonstration_ids, sample.right_kind, sample.record_ids) == (None, None, ("j1",))


def test_an_empty_right_reply_is_none(policy: Policy) -> None:
    sample = to_sample(interaction(policy.tokenizer), REWARD, policy.tokenizer, right=replace(CORRECTION, text=""))
    assert isinstance(sample, Sample) and sample.demonstration_ids is None


def test_a_reply_that_was_cut_off_is_distilled_if_a_hint_says_what_was_missing(policy: Any) -> None:
    """It carries no policy gradient: its end was not the policy's choice."""
    cut = interaction(policy.tokenizer, "copy 1", finish_reason="length")
    sample = to_sample(cut, HINTED, policy.tokenizer)
    assert isinstance(sample, Sample)
    assert sample.hinted_prompt_ids is not None and not sample.has_ratio
    whole = to_sample(interaction(policy.tokenizer, "copy 1"), HINTED, policy.tokenizer)
    assert isinstance(whole, Sample) and whole.has_ratio


def test_a_reply_may_end_with_a_token_that_only_the_generation_configuration_names(
    policy: Policy, tmp_path: Path
) -> None:
    where = (policy.tokenizer, [{"role": "user", "content": "1"}], ())
    ids, end = render(*where), policy.tokenizer.eos_token_id
    policy.tokenizer.save_pretrained(tmp_path)
    other = AutoTokenizer.from_pretrained(tmp_path, eos_token="<|user|>")
    assert not learns_right_replies(other) and right_reply(other, *where[1:], "3 4", ids) is None
    for name, named in (("one", end), ("several", [0, end])):
        folder = tmp_path / name
        other.save_pretrained(folder)
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": named}))
        configured = AutoTokenizer.from_pretrained(folder)
        assert end in reply_ends(configured) and learns_right_replies(configured)
        assert right_reply(configured, *where[1:], "3 4", ids) == right_reply(*where, "3 4", ids)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"eos_token_id": "x"}', '{"eos_token_id": null}'])
def test_a_damaged_generation_configuration_names_no_end(policy: Policy, tmp_path: Path, text: str) -> None:
    policy.tokenizer.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(text)
    assert reply_ends(AutoTokenizer.from_pretrained(tmp_path)) == {policy.tokenizer.eos_token_id}
