"""What the base model's files say of it without loading it, and what it lacks to be trained.

A model that cannot be trained is served all the same: without adapters if it cannot take any.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.adapters.lora_support import serves_lora

LORA_TARGETS = (
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
    "c_attn",
    "query_key_value",
    "qkv_proj",
)
_CONTEXT = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "max_seq_len")
"""Names of the context's length in a config.json."""


@dataclass(frozen=True, slots=True)
class Lack:
    """Why nothing can be trained, and the remedy. `takes_adapters`: the engine could serve adapters all the same."""

    what: str
    remedy: str
    takes_adapters: bool = False

    @property
    def sentence(self) -> str:
        return f"{self.what}; {self.remedy}"


def lacks(directory: Path) -> Iterator[Lack]:
    """All that the model lacks. Raises ValueError for damaged files, FileNotFoundError without a config.json."""
    architecture = next(iter(described(directory).get("architectures") or []), "")
    names = weights(directory)
    if serves_lora(architecture) is False:
        yield Lack(
            f"vLLM serves {architecture} without LoRA adapters, so the base answers and nothing is learned",
            "take a model of another architecture, e.g. Llama, Qwen or Mistral",
        )
    elif names and not targets(names):
        yield Lack(
            "no linear layer that LoRA can adapt was found, so the base answers and nothing is learned",
            f"take a model that has one of {', '.join(LORA_TARGETS)}",
        )
    if not has_chat_template(directory):
        yield Lack(
            "the model has no chat template, so chat requests are refused and nothing is learned",
            "add chat_template.jinja to its directory, or take an instruction-tuned model",
            takes_adapters=True,
        )


def lack(model: str) -> Lack | None:
    """The first thing that `model` lacks. None for a hub's name, and for damaged files, which `burnish doctor`
    reports."""
    try:
        return next(lacks(Path(model)), None)
    except (OSError, ValueError):
        return None


def takes_adapters(model: str) -> bool:
    """False if the engine would not start with LoRA on."""
    found = lack(model)
    return found is None or found.takes_adapters


def described(directory: Path) -> dict[str, Any]:
    """The model's config.json. Raises ValueError if it cannot be read, FileNotFoundError if there is none."""
    return _object(directory / "config.json")


def context(config: dict[str, Any]) -> int | None:
    """The longest prompt plus reply, in tokens. None if a config.json does not say."""
    parts = [config, *(part for part in (config.get("text_config"),) if isinstance(part, dict))]
    return next((int(part[name]) for part in parts for name in _CONTEXT if isinstance(part.get(name), int)), None)


def has_chat_template(directory: Path) -> bool:
    """Raises ValueError if the tokenizer's configuration cannot be read."""
    file = directory / "tokenizer_config.json"
    return (file.exists() and bool(_object(file).get("chat_template"))) or any(directory.glob("chat_template*"))


def weights(directory: Path) -> set[str]:
    """Names of the tensors in the safetensors files. Raises ValueError if a file is damaged."""
    names: set[str] = set()
    for file in directory.glob("*.safetensors"):
        try:
            with file.open("rb") as handle:
                length = int.from_bytes(handle.read(8), "little")
                if not 0 < length < file.stat().st_size:
                    raise ValueError(f"a header of {length} bytes in a file of {file.stat().st_size}")
                names |= set(_parsed(handle.read(length)))
        except ValueError as error:
            raise ValueError(f"{file} cannot be read: {error}") from error
    return names


def targets(names: set[str]) -> list[str]:
    """The linear layers among the tensors that LoRA can adapt."""
    return sorted({target for target in LORA_TARGETS if any(f".{target}." in name for name in names)})


def _object(file: Path) -> dict[str, Any]:
    try:
        return _parsed(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file} cannot be read: {error}") from error


def _parsed(text: bytes) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"expected an object, got {type(found).__name__}")
    return found
