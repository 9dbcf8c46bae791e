"""A LoRA adapter that PEFT saved elsewhere: it is read and checked without torch, and nothing in it is executed.

An adapter that passes is a plain LoRA in safetensors, of a rank that the engine accepts, with the shapes of the base's
layers, and made for the served base (or for one that the operator vouches for). No path that it names is looked at.

`python -m burnish.adapters.files.foreign` checks one within limits of memory and time, for a server that was sent it.
"""

import json
import os
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.adapters.base_model import revision
from burnish.adapters.files.contents import CONFIG, PICKLES, WEIGHTS, check_shapes, shapes_of
from burnish.errors import AdapterError

MAX_MEMORY = 2**30
MAX_CPU_SECONDS = 20
MANIFEST = "manifest.json"
_PREFIX = "base_model.model."
_CODE = (".py", ".pyc", ".so", ".sh")
_CHANGES_BASE = ("pissa", "olora", "loftq", "corda", "eva", "lora_ga")
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "use_dora": (None, False),
    "bias": (None, "none"),
    "lora_bias": (None, False),
    "fan_in_fan_out": (None, False),
    "modules_to_save": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "layer_replication": (None, []),
    "target_parameters": (None, []),
    "trainable_token_indices": (None, []),
    "task_type": (None, "CAUSAL_LM"),
}
"""PEFT's fields, with the values of a plain LoRA of a causal language model."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """The content of a checked directory. `scaling` multiplies B·A. `targets` are the layers' last names. `ignored`
    files are not read.
    """

    directory: Path
    rank: int
    alpha: float
    scaling: float
    targets: frozenset[str]
    base: str
    ignored: tuple[str, ...]


def read(directory: Path, *, model: str, max_rank: int, any_base: bool = False) -> Foreign:
    """The adapter in `directory`, fit for the base `model` (a directory or hub name).

    Raises AdapterError that names the fault and the remedy. `any_base` takes the caller's word that the adapter belongs
    to this base. The shapes are compared in any case.
    """
    if not directory.is_dir():
        raise AdapterError(f"{directory} is no directory; give the one that PEFT saved the adapter in")
    names = sorted(file.name for file in directory.iterdir())
    _refuse_code(directory, names)
    config = _json(directory / CONFIG)
    rank, scaling = _form(directory / CONFIG, config)
    if rank > max_rank:
        raise AdapterError(
            f"{directory / CONFIG}: rank {rank}, the engine takes {max_rank} at most; raise engine.max_lora_rank and "
            "restart it"
        )
    file = directory / WEIGHTS
    shapes = shapes_of(file)
    targets = {name.partition(".lora_")[0].rpartition(".")[2] for name in shapes}
    check_shapes(file, shapes, rank, targets)
    manifest = _json(directory / MANIFEST) if MANIFEST in names else {}
    _check_base(directory, config, manifest, model, any_base)
    _check_layers(file, shapes, Path(model))
    ignored = tuple(name for name in names if name not in (CONFIG, WEIGHTS, MANIFEST))
    base = str(config.get("base_model_name_or_path") or "")
    return Foreign(directory, rank, float(config["lora_alpha"]), scaling, frozenset(targets), base, ignored)


def _refuse_code(directory: Path, names: list[str]) -> None:
    for name in names:
        if name.endswith(PICKLES):
            raise AdapterError(
                f"{directory / name} is a pickle, which can hold any program; save the adapter with "
                "safe_serialization=True and "
                f"leave only {CONFIG} and {WEIGHTS} in the directory"
            )
        if name.endswith(_CODE):
            raise AdapterError(
                f"{directory / name} is code, and an adapter needs none; leave only {CONFIG} and {WEIGHTS}"
            )
    for name in (CONFIG, WEIGHTS):
        if name not in names:
            raise AdapterError(f"{directory / name} is missing; give the directory that PEFT's save_pretrained made")
        if (directory / name).is_symlink():
            raise AdapterError(f"{directory / name} is a link; copy the file itself into the directory")


def _form(file: Path, config: Mapping[str, Any]) -> tuple[int, float]:
    """Rank and scaling of a plain LoRA."""
    if config.get("peft_type") != "LORA":
        raise AdapterError(f"{file}: peft_type is {config.get('peft_type')!r}, expected 'LORA'")
    for key, allowed in _MUST_BE.items():
        if config.get(key) not in allowed:
            raise AdapterError(
                f"{file}: {key} is {config[key]!r}, expected {allowed[-1]!r}; merge it away or train without it"
            )
    began = config.get("init_lora_weights")
    if isinstance(began, str) and began.lower().startswith(_CHANGES_BASE):
        raise AdapterError(
            f"{file}: init_lora_weights {began!r} changes the base as well; convert it to a plain LoRA with PEFT"
        )
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise AdapterError(f"{file}: r is {rank!r}, expected a whole number above 0")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha < 1e6:
        raise AdapterError(f"{file}: lora_alpha is {alpha!r}, expected a number above 0")
    return rank, float(alpha) / (rank**0.5 if config.get("use_rslora") else rank)


def _check_base(
    directory: Path, config: Mapping[str, Any], manifest: Mapping[str, Any], model: str, any_base: bool
) -> None:
    if any_base:
        return
    remedy = "; if it belongs to this base all the same, say so with --any-base"
    local = Path(model) if Path(model).is_dir() else None
    made_on = manifest.get("base")
    if isinstance(made_on, Mapping) and made_on.get("revision") and local is not None:
        if made_on["revision"] != (found := revision(local)):
            said = f"{str(made_on['revision'])[:12]}…, the engine serves {found[:12]}… ({model})"
            raise AdapterError(f"{directory / MANIFEST}: made on base {said}{remedy}")
        return
    name = config.get("base_model_name_or_path")
    if not isinstance(name, str) or not name:
        raise AdapterError(f"{directory / CONFIG}: base_model_name_or_path names no base{remedy}")
    if name != model and (local is None or os.path.abspath(name) != os.path.abspath(model)):
        raise AdapterError(f"{directory / CONFIG}: made for base {name!r}, the engine serves {model!r}{remedy}")
    if config.get("revision"):
        said = f"revision {config['revision']!r} of {name!r} cannot be compared with what is served"
        raise AdapterError(f"{directory / CONFIG}: {said}{remedy}")


def _check_layers(file: Path, shapes: Mapping[str, list[int]], model: Path) -> None:
    """Compare each A and B with the weight that it changes, if the base's weights can be read."""
    if not model.is_dir() or not (weights := sorted(model.glob("*.safetensors"))):
        return
    known = {name: shape for each in weights for name, shape in shapes_of(each).items()}
    for name, shape in shapes.items():
        layer, _, side = name.removesuffix(".weight").rpartition(".lora_")
        weight = f"{layer.removeprefix(_PREFIX)}.weight"
        if weight not in known:
            raise AdapterError(f"{file}: {layer.removeprefix(_PREFIX)} is no layer of the base {model}")
        out, into = known[weight]
        if (shape[1] if side == "A" else shape[0]) != (into if side == "A" else out):
            raise AdapterError(f"{file}: {name} has shape {shape}, the base's layer is {known[weight]}")


def _json(file: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise AdapterError(f"cannot read {file}: {error}") from error
    if not isinstance(found, dict):
        raise AdapterError(f"{file}: expected a JSON object, got {type(found).__name__}")
    return found


def main() -> None:
    """Answer one request: the arguments of `read` → {}, or {error}."""
    asked = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))
    answer = {}
    try:
        read(Path(asked.pop("directory")), **asked)
    except AdapterError as error:
        answer["error"] = str(error)
    except MemoryError:
        answer["error"] = f"{CONFIG}, {MANIFEST} or the header of {WEIGHTS} takes too much memory to read"
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
