"""What an adapter's files must contain, read without torch: PEFT's configuration and the safetensors header.

A directory that passes holds only listed files, no pickle, and an adapter of the rank, alpha and targets in its
manifest, with an A and a B for each layer. vLLM would refuse anything else or load it wrongly.
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish.errors import AdapterError

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
_MAX_HEADER = 16 * 2**20


def check_contents(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Raises AdapterError if `directory` is not the adapter that `manifest` describes. Digests are not checked."""
    present = {file.name for file in directory.iterdir()} - {"manifest.json"}
    listed = manifest.get("files")
    if not isinstance(listed, Mapping):
        raise AdapterError(f"{directory / 'manifest.json'} lists no files")
    for name in sorted(present):
        if name.endswith(PICKLES):
            raise AdapterError(f"{directory / name} is a pickle; adapters are kept as {WEIGHTS} only")
    for name in sorted({WEIGHTS, CONFIG, *listed} - present):
        raise AdapterError(f"{directory / name} is missing")
    for name in sorted(present - set(listed)):
        raise AdapterError(f"{directory / name} is not in the manifest")
    _check_config(directory / CONFIG, manifest)
    _check_weights(directory / WEIGHTS, int(manifest["rank"]), set(manifest["targets"]))


def _check_config(file: Path, manifest: Mapping[str, Any]) -> None:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        found = {"rank": config["r"], "alpha": config["lora_alpha"], "targets": sorted(config["target_modules"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AdapterError(f"{file} is not a PEFT LoRA configuration: {error!r}") from error
    for key, value in found.items():
        expected = manifest.get(key)
        if value != (sorted(expected) if key == "targets" and expected is not None else expected):
            raise AdapterError(f"{file} has {key} {value}, the manifest says {expected}")


def _check_weights(file: Path, rank: int, targets: set[str]) -> None:
    check_shapes(file, shapes_of(file), rank, targets)


def check_shapes(file: Path, shapes: Mapping[str, list[int]], rank: int, targets: set[str]) -> None:
    """Raises AdapterError if `shapes` are not an A and a B of `rank` for each layer of `targets`. `file` is for the
    message.
    """
    layers: dict[str, set[str]] = {}
    for name, shape in shapes.items():
        layer, mark, side = name.removesuffix(".weight").rpartition(".lora_")
        if not mark or side not in ("A", "B") or not name.startswith("base_model.model."):
            raise AdapterError(f"{file}: {name} is no LoRA tensor of PEFT's layout")
        if layer.rpartition(".")[2] not in targets:
            raise AdapterError(f"{file}: {name} belongs to none of the targets {sorted(targets)}")
        if len(shape) != 2 or shape[0 if side == "A" else 1] != rank:
            raise AdapterError(f"{file}: {name} has shape {shape}, which is not of rank {rank}")
        layers.setdefault(layer, set()).add(side)
    if not layers:
        raise AdapterError(f"{file} holds no tensors")
    for layer, sides in layers.items():
        if len(sides) != 2:
            raise AdapterError(f"{file}: {layer} has only lora_{sides.pop()}")


def shapes_of(file: Path) -> dict[str, list[int]]:
    """Tensor shapes from a safetensors header: 8 bytes of length, JSON, then data up to the end of the file."""
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > _MAX_HEADER:
                raise ValueError(f"header of {length} bytes")
            header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        if 8 + length + end != file.stat().st_size:
            raise ValueError(f"{file.stat().st_size} bytes, the header speaks of {8 + length + end}")
        return {name: entry["shape"] for name, entry in header.items()}
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AdapterError(f"{file} is not a safetensors file: {error}") from error
