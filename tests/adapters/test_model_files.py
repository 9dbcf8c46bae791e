"""What a model lacks to be trained is told from its files, and it is served all the same."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from burnish import config
from burnish.adapters import lora_support, model_files
from burnish.adapters.lora_support import serves_lora
from burnish.config import machine
from burnish.processes.parts import parts_of
from burnish.processes.vllm_server import command
from tests.model_dirs import model_dir

LORA_FLAGS = ("--enable-lora", "--max-loras", "--max-cpu-loras", "--max-lora-rank")


def settings_of(model: Path | str) -> config.Settings:
    return config.load(flags={"engine.model": str(model), "engine.adapters": {"critic": "/adapters/critic"}})


def parts(settings: config.Settings) -> list[str]:
    return [part.name for part in parts_of(settings, {})]


@pytest.mark.parametrize(
    ("made", "said", "takes_adapters"),
    [
        ({}, [], True),
        ({"template": ""}, ["no chat template"], True),
        ({"layer": "conv"}, ["no linear layer that LoRA can adapt"], False),
        ({"architecture": "GPT2LMHeadModel", "layer": "c_attn"}, ["vLLM serves GPT2LMHeadModel without LoRA"], False),
        ({"layer": "conv", "template": ""}, ["no linear layer", "no chat template"], False),
        ({"architecture": "OfNobody"}, [], True),
    ],
)
def test_a_model_is_served_and_trained_as_far_as_it_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: dict[str, str], said: Sequence[str], takes_adapters: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    model = model_dir(tmp_path / "model", **made)
    found = list(model_files.lacks(model))
    assert [text in lack.what for lack, text in zip(found, said, strict=True)] == [True] * len(said)
    assert model_files.lack(str(model)) == (found[0] if found else None)
    settings = settings_of(model)
    arguments = command(settings)
    assert [flag in arguments for flag in (*LORA_FLAGS, "--lora-modules")] == [takes_adapters] * 5
    assert ("learner" in parts(settings)) is (not said)
    assert {"engine", "gateway", "ingester", "swapper", "judge"} <= set(parts(settings))


@pytest.mark.parametrize(
    ("layer", "has_gpu", "expected"), [("q_proj", False, True), ("q_proj", True, False), ("conv", False, False)]
)
def test_vllm_takes_its_own_kernels_where_it_cannot_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layer: str, has_gpu: bool, expected: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "has_gpu", lambda: has_gpu)
    arguments = command(settings_of(model_dir(tmp_path / "model", layer=layer)))
    assert ("--enforce-eager" in arguments) is expected


def test_what_cannot_be_read_is_not_judged_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert model_files.lack("acme/model-7b") is None
    assert "--enable-lora" in command(settings_of("acme/model-7b"))
    (model_dir(tmp_path / "model") / "model.safetensors").write_bytes(b"\xff" * 64)
    assert model_files.lack(str(tmp_path / "model")) is None
    with pytest.raises(ValueError, match=r"model\.safetensors cannot be read"):
        list(model_files.lacks(tmp_path / "model"))


@pytest.mark.parametrize(
    ("described", "length"),
    [
        ({"max_position_embeddings": 128}, 128),
        ({"n_positions": 1024}, 1024),
        ({"text_config": {"max_position_embeddings": 4096}}, 4096),
        ({}, None),
    ],
)
def test_the_context_is_read_under_its_names(described: dict[str, Any], length: int | None) -> None:
    assert model_files.context(described) == length


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("LlamaForCausalLM", True),
        ("Qwen2ForCausalLM", True),
        ("Ministral3ForCausalLM", True),  # inherits it from another file's class
        ("GPT2LMHeadModel", False),
        ("OfNobody", None),
    ],
)
def test_the_installed_vllm_says_what_it_serves_with_adapters(architecture: str, expected: bool | None) -> None:
    assert serves_lora(architecture) is expected


def test_without_vllm_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lora_support.importlib.util, "find_spec", lambda name: None)
    serves_lora.cache_clear()
    assert serves_lora("GPT2LMHeadModel") is None
    serves_lora.cache_clear()
