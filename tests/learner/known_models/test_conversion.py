"""A GGUF file becomes a directory for Transformers: same values, the tokenizer's own steps, the chat template."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from burnish.learner.known_models.conversion import convert
from tests.learner.known_models.tiny_wheel import HEADS, HIDDEN, LAYERS, write_gguf


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf") / "tiny.gguf"


@pytest.fixture(scope="module")
def values(source: Path) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value) for name, value in write_gguf(source).items()}


@pytest.fixture(scope="module")
def converted(source: Path, values: dict[str, torch.Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("converted") / "tiny"
    convert(source, target, splits_digits=True)
    return target


def test_weights_are_the_dequantised_ones_bit_for_bit(converted: Path, values: dict[str, torch.Tensor]) -> None:
    model = AutoModelForCausalLM.from_pretrained(converted)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert torch.equal(model.model.embed_tokens.weight, values["token_embd"])
    assert model.lm_head.weight is model.model.embed_tokens.weight
    layer = model.model.layers[LAYERS - 1]
    for part, name in ((layer.mlp.down_proj, "ffn_down"), (layer.self_attn.v_proj, "attn_v")):
        assert torch.equal(part.weight, values[f"blk.{LAYERS - 1}.{name}"])
    # a GGUF file pairs the two halves of each head for its rotary embedding; Transformers has them one after the other
    paired = values["blk.0.attn_q"].reshape(HEADS, HIDDEN // HEADS // 2, 2, HIDDEN).transpose(1, 2)
    assert torch.equal(model.model.layers[0].self_attn.q_proj.weight, paired.reshape(HIDDEN, HIDDEN))


def test_the_configuration_is_that_of_a_plain_llama(converted: Path) -> None:
    config = json.loads((converted / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["rms_norm_eps"], config["rope_parameters"]["rope_theta"]) == (1e-5, 100_000.0)
    assert (config["tie_word_embeddings"], config["eos_token_id"]) == (True, 2)
    generation = json.loads((converted / "generation_config.json").read_text())
    assert (generation["eos_token_id"], generation["pad_token_id"]) == (2, 2)


def test_the_tokenizer_splits_digits_and_keeps_the_chat_template(converted: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(converted)
    assert tokenizer.tokenize("a\n\n21") == ["a", "ĊĊ", "2", "1"]
    assert (tokenizer.eos_token, tokenizer.model_max_length) == ("<|im_end|>", 512)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.encode("<|im_end|>") == [2]


def test_every_file_can_be_read_by_others(converted: Path) -> None:
    assert {file.stat().st_mode & 0o777 for file in converted.iterdir()} == {0o644}


def test_the_tokenizer_ends_a_reply_as_the_model_does(
    source: Path, values: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transformers 5.17 reads another end token from the same file."""
    read = AutoTokenizer.from_pretrained

    def other(*args: Any, **more: Any) -> Any:
        tokenizer = read(*args, **more)
        tokenizer.eos_token, tokenizer.pad_token = "<|im_start|>", None
        return tokenizer

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", other)
    convert(source, tmp_path / "tiny", splits_digits=True)
    monkeypatch.undo()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tiny")
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|im_end|>")
