"""An adapter as files in PEFT's layout, as vLLM loads it: `adapter_model.safetensors` and `adapter_config.json`.

Guarantee: what is read back is bit for bit what was written. A tensor that is missing, surplus or of another shape is
an error that names it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as as_bytes
from torch import Tensor

from burnish.errors import AdapterError

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def save(directory: Path, tensors: Mapping[str, Tensor], config: Any) -> None:
    """Write `tensors` (CPU, contiguous) and PEFT's `config`. Raises OSError if the disk does not take them."""
    write_tensors(directory / WEIGHTS, tensors, {"format": "pt"})
    described = {key: sorted(value) if isinstance(value, set) else value for key, value in config.to_dict().items()}
    described["inference_mode"] = True
    (directory / CONFIG).write_text(json.dumps(described, indent=1, sort_keys=True, default=str), encoding="utf-8")


def write_tensors(file: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file. Raises OSError with its number, which safetensors' own error for a full disk lacks."""
    file.write_bytes(as_bytes(dict(tensors), metadata=metadata))


def fill(targets: Mapping[str, Tensor], directory: Path) -> None:
    """Copy the adapter in `directory` into `targets`."""
    file = directory / WEIGHTS
    try:
        found = load_file(file)
    except Exception as error:  # safetensors raises its own type for a bad header
        raise AdapterError(f"cannot read the adapter {file}: {error}") from error
    copy(found, targets, str(file))


def copy(found: Mapping[str, Tensor], targets: Mapping[str, Tensor], origin: str) -> None:
    """Copy `found` into `targets`. Names and shapes must match. Nothing is copied if one differs."""
    if odd := sorted(set(found) ^ set(targets)):
        raise AdapterError(
            f"adapter {origin} does not fit this base model: {len(odd)} tensors differ, the first is {odd[0]}"
        )
    for name, target in targets.items():
        if found[name].shape != target.shape:
            shapes = f"{tuple(found[name].shape)}, expected {tuple(target.shape)}"
            raise AdapterError(f"adapter {origin}: {name} has shape {shapes}")
    with torch.no_grad():
        for name, target in targets.items():
            target.copy_(found[name])
