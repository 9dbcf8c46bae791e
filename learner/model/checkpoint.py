"""Checkpoint: a step's whole state as one adapter version, saved and restored.

Guarantee: adapter, optimiser, RNG and baselines come back bit for bit, so that the next step after a restart is the
same as without it. No pickle is written or read.
"""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version as library_version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors.torch import load_file

from burnish.adapters.files.store import AdapterStore
from burnish.errors import AdapterError
from burnish.learner.model import adapter_file
from burnish.learner.model.base_model import revision
from burnish.learner.run.trainer import Trainer

OPTIMIZER, STATE, PROBE, RETAINED = "optimizer.safetensors", "state.json", "probe.json", "retained.json"
_LIBRARIES = ("torch", "peft", "transformers", "safetensors")


def save(
    store: AdapterStore,
    agent: str,
    version: int,
    trainer: Trainer,
    *,
    parent: int,
    rows: Sequence[str],
    metrics: Mapping[str, float],
    probe: Mapping[str, Any],
    kept_answers: Mapping[str, Any] | None = None,
    cursor: Any = None,
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> Path:
    """Publish the trainer's present state as `agent@v<version>`. Returns its directory.

    `rows` are the interaction ids that the step used. `kept_answers` is the record of
    `burnish.learner.safety.kept_answers`. `cursor` is the caller's own (any JSON value), returned by `restore`. `facts`
    are further entries of the manifest. Raises AdapterError if the version exists already.
    """
    policy = trainer.policy
    with store.aside(agent, version) as directory:
        adapter_file.save(directory, policy.copy_adapter(), policy.config)
        adapter_file.write_tensors(directory / OPTIMIZER, trainer.tensors())
        state = {
            **trainer.state(),
            "cursor": cursor,
            "recipe": trainer.recipe.model_dump(mode="json"),
            "threads": torch.get_num_threads(),
        }
        _write_json(directory / STATE, state)
        _write_json(directory / PROBE, probe)
        if kept_answers is not None:
            _write_json(directory / RETAINED, kept_answers)
        known = {
            **facts,
            "schema": 1,
            "parent": parent,
            "base": {"directory": str(policy.base_dir), "revision": revision(policy.base_dir)},
            "rank": policy.config.r,
            "alpha": policy.config.lora_alpha,
            "targets": policy.targets,
            "rows": list(rows),
            "metrics": dict(metrics),
            "libraries": {name: library_version(name) for name in _LIBRARIES},
        }
        return store.publish(agent, version, directory, known)


def restore(directory: Path, trainer: Trainer) -> Any:
    """Put the trainer into the state that `directory` holds. Returns the cursor.

    Raises AdapterError if the files are unreadable or belong to another base. The trainer is then unchanged.
    """
    policy = trainer.policy
    try:
        state = json.loads((directory / STATE).read_text(encoding="utf-8"))
        manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
        tensors = load_file(directory / OPTIMIZER)
    except Exception as error:  # safetensors raises its own type for a bad header
        raise AdapterError(f"cannot resume from {directory}: {error}") from error
    if (base := revision(policy.base_dir)) != manifest["base"]["revision"]:
        raise AdapterError(
            f"{directory} was trained on base {manifest['base']['revision'][:12]}…, this one is {base[:12]}…"
        )
    policy.load_adapter(directory)
    trainer.restore_tensors(tensors)
    trainer.restore(state)
    return state["cursor"]


def _write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, sort_keys=True), encoding="utf-8")
