"""SmolLM2 itself, from PyPI or from the user's cache: the known shape, the official template, and a right answer."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from burnish.adapters.base_model import revision
from burnish.config import OF_KNOWN_BASES
from burnish.learner import known_models

pytestmark = pytest.mark.engine  # starts no engine, but downloads 93 MB: with those, in CI only


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """The fetched model. A download goes to a directory that ends with the tests."""
    if known_models.directory("smollm2"):
        yield known_models.ensure("smollm2", print)
        return
    with tempfile.TemporaryDirectory() as cache, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", cache)
        yield known_models.ensure("smollm2", print)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def test_it_has_the_published_shape(folder: Path) -> None:
    config = AutoConfig.from_pretrained(folder)
    assert (config.hidden_size, config.num_hidden_layers, config.intermediate_size) == (576, 30, 1536)
    assert (config.num_attention_heads, config.num_key_value_heads, config.vocab_size) == (9, 3, 49_152)
    assert (config.rope_parameters["rope_theta"], config.max_position_embeddings) == (100_000, 8192)
    assert (config.rms_norm_eps, config.tie_word_embeddings, config.eos_token_id) == (1e-5, True, 2)


def test_what_ships_of_its_answers_is_its_own(folder: Path) -> None:
    (answers,) = OF_KNOWN_BASES.glob("base-answers-*.json")
    assert json.loads(answers.read_text(encoding="utf-8"))["identity"].startswith(revision(folder) + " ")


def test_its_template_speaks_first_where_there_is_no_system_message(tokenizer: Any) -> None:
    def text(*messages: dict[str, str]) -> str:
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))

    user = {"role": "user", "content": "Hi"}
    spoken = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    named = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    assert text(user) == f"<|im_start|>system\n{named}<|im_end|>\n{spoken}"
    assert (
        text({"role": "system", "content": "Be brief."}, user) == f"<|im_start|>system\nBe brief.<|im_end|>\n{spoken}"
    )


def test_its_tokenizer_takes_each_digit_by_itself(tokenizer: Any) -> None:
    assert tokenizer.tokenize("First.\n\n24") == ["First", ".", "ĊĊ", "2", "4"]


def test_it_answers(folder: Path, tokenizer: Any) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        reply = model.generate(**prompt, max_new_tokens=20, do_sample=False)
    assert tokenizer.decode(reply[0, prompt["input_ids"].shape[1] :]) == "The capital of France is Paris.<|im_end|>"
