"""The shipped model: its files match the manifest, its template is Hermes', and it has the abilities that the sandbox
needs.
"""

import json
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from burnish.judges.verdicts.verdict import parse_vote, verdict_messages
from burnish.learner.data.teacher_prompts import with_hint
from burnish.sandbox import MODEL
from burnish.sandbox.training import build_model, measure
from burnish.sandbox.world import tool_task

N = 60


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(MODEL)


@pytest.fixture(scope="module")
def model() -> Any:
    torch.set_num_threads(2)
    return AutoModelForCausalLM.from_pretrained(MODEL).eval()


@pytest.fixture(scope="module")
def figures(model: Any, tokenizer: Any) -> dict[str, float]:
    return measure.measure(model, tokenizer, N, seed=5)


def test_the_manifest_matches_the_files() -> None:
    manifest = json.loads((MODEL / build_model.MANIFEST).read_text(encoding="utf-8"))
    assert manifest["sha256"] == build_model.digests(MODEL)
    assert manifest["recipe"] == build_model.VERSION
    assert (MODEL / "model.safetensors").stat().st_size <= 10_000_000


def test_the_shape_is_one_that_vllm_serves(model: Any, tokenizer: Any) -> None:
    assert model.config.model_type == "llama"
    assert model.config.head_dim in {32, 64}
    assert model.config.max_position_embeddings == 2048
    assert model.config.tie_word_embeddings
    assert model.dtype == torch.float32
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == tokenizer.convert_tokens_to_ids("<|end|>")


def test_any_text_is_encoded_and_every_digit_by_itself(tokenizer: Any) -> None:
    for text in ("Copy 41 7 93.", "Grüße, 世界 🙂\n\ttabs  and spaces", "<tool_call>"):
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert tokenizer.tokenize("417") == ["4", "1", "7"]
    assert len(tokenizer("<tool_call>").input_ids) == 1
    assert tokenizer.decode(tokenizer("<tool_call>").input_ids, skip_special_tokens=True) == "<tool_call>"


def test_tools_and_calls_are_rendered_in_the_hermes_form(tokenizer: Any) -> None:
    messages = [
        {"role": "user", "content": "Look up mint."},
        tool_task.call_message("lookup", "mint"),
        tool_task.result_message("7"),
    ]
    text = tokenizer.apply_chat_template(
        messages, tools=[tool_task.definition("lookup")], tokenize=False, add_generation_prompt=True
    )
    assert '<tools>\n{"name": "lookup", "description": "Look up the value of a key.", "parameters": {' in text
    assert f"<|assistant|>{tool_task.call_text('lookup', 'mint')}<|end|>" in text
    assert text.endswith("<|tool|><tool_response>\n7\n</tool_response><|end|><|assistant|>")
    call = messages[1]["tool_calls"][0]["function"]  # type: ignore[index]
    call["arguments"] = json.loads(call["arguments"])  # type: ignore[index]
    assert text == tokenizer.apply_chat_template(
        messages, tools=[tool_task.definition("lookup")], tokenize=False, add_generation_prompt=True
    )


def test_parts_render_as_one_text_would(tokenizer: Any) -> None:
    plain = with_hint([{"role": "user", "content": "Copy 4 7."}], "Use bold.")
    parts = with_hint([{"role": "user", "content": [{"type": "text", "text": "Copy 4 7."}]}], "Use bold.")
    assert isinstance(parts[0]["content"], list)
    rendered = [tokenizer.apply_chat_template(each, tokenize=False) for each in (plain, parts)]
    assert rendered[0] == rendered[1] == "<|user|>Copy 4 7.\n\n(Hint: Use bold.)<|end|>"


def test_it_answers_and_obeys(figures: dict[str, float]) -> None:
    assert figures["base_right"] >= 0.95
    for place in measure.PLACES:
        assert figures[f"obeys_one.{place}"] >= 0.88, place
        assert figures[f"obeys_many.{place}"] >= 0.88, place


def test_it_leaves_something_to_learn(figures: dict[str, float]) -> None:
    assert 0.01 < figures["base_satisfies_house"] < 0.2
    for name in measure.ATTRIBUTES:
        assert 0.15 <= figures[f"base_has.{name}"] <= 0.85


def test_it_judges_and_writes_hints(figures: dict[str, float]) -> None:
    assert figures["verdict_right"] >= 0.94
    assert figures["hint_exact"] >= 0.8  # 0.91 of 400; corrections of two attributes at once are its weak place
    assert figures["no_hint_kept"] >= 0.95


def test_it_uses_tools_counts_and_talks(figures: dict[str, float]) -> None:
    for name in ("tool_call_valid", "tool_answer_right", "small_talk_right"):
        assert figures[name] >= 0.88, name
    assert figures["count_right"] >= 0.4  # 0.60 of 400: where a count ends is one token of a hundred, and hard to learn


@pytest.mark.parametrize(
    ("next_state", "origin", "score", "hint"),
    [
        ("No bold please. Now reverse 3 9.", "user", -1, "Do not use bold."),
        ("Thanks! Copy 4 71.", "user", 1, None),
        ("That is wrong.", "user", -1, None),
        ("Last of 8 30.", "user", 0, None),
        ("rating: bad\ncomment: you forgot the smile", "feedback", -1, "Use a smile."),
        ("rating: good", "feedback", 1, None),
        ("error: not found", "tool", -1, None),
    ],
)
def test_verdicts_by_name(
    model: Any, tokenizer: Any, next_state: str, origin: str, score: int, hint: str | None
) -> None:
    conversation = [{"role": "user", "content": "Copy 41 7."}]
    prompt: measure.Messages = [dict(each) for each in verdict_messages(conversation, "**41 7**", next_state, origin)]
    vote = parse_vote(measure.generate(model, tokenizer, [prompt], temperature=0.0)[0])
    assert (vote.score, vote.hint) == (score, hint)
