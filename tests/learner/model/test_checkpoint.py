"""A version is a whole state: after a restore, the next step is bit for bit the one that would have followed."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from burnish.adapters.files.store import AdapterStore
from burnish.errors import AdapterError
from burnish.learner.data.rows import Text
from burnish.learner.data.samples import Sample
from burnish.learner.model import checkpoint
from burnish.learner.model.probe import build_probe
from burnish.learner.run.trainer import Trainer

Make = Callable[..., Trainer]
Samples = Callable[..., list[Sample]]
ANCHORS = [Text([5, 6, 7], [20, 21, 0])]


def publish(store: AdapterStore, version: int, trainer: Trainer) -> Path:
    return checkpoint.save(
        store, "agent", version, trainer, parent=version - 1, rows=["a"], metrics={"x": 1.0}, probe={}, cursor={"at": 7}
    )


def test_resuming_takes_the_step_that_would_have_followed(
    make_trainer: Make, make_samples: Samples, tmp_path: Path
) -> None:
    store, going = AdapterStore(tmp_path), make_trainer(shuffle_rewards=True)
    going.step(make_samples(8), ANCHORS)
    directory = publish(store, 1, going)
    resumed = make_trainer(shuffle_rewards=True)
    resumed.step(make_samples(3))  # any other state
    assert checkpoint.restore(directory, resumed) == {"at": 7}
    assert resumed.state() == going.state()
    assert all(torch.equal(tensor, resumed.tensors()[name]) for name, tensor in going.tensors().items())
    for trainer, version in ((going, 2), (resumed, 3)):
        trainer.step(make_samples(8), ANCHORS)
        publish(store, version, trainer)
    assert store.verify("agent", 2)["files"] == store.verify("agent", 3)["files"]


def test_a_published_version_is_complete_and_has_its_facts(
    make_trainer: Make, make_samples: Samples, tmp_path: Path
) -> None:
    store, trainer = AdapterStore(tmp_path), make_trainer()
    directory = publish(store, 1, trainer)
    manifest = store.verify("agent", 1)
    names = {"adapter_model.safetensors", "adapter_config.json", "optimizer.safetensors", "state.json", "probe.json"}
    assert set(manifest["files"]) == names
    assert {file.name for file in directory.iterdir()} == names | {"manifest.json"}
    assert (manifest["rank"], manifest["alpha"], manifest["parent"], manifest["rows"]) == (4, 8, 0, ["a"])
    linear = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
    assert manifest["targets"] == linear
    assert {"torch", "peft"} <= set(manifest["libraries"])
    config = json.loads((directory / "adapter_config.json").read_text())
    assert (config["peft_type"], config["inference_mode"], config["target_modules"]) == ("LORA", True, linear)


def test_an_unreadable_or_foreign_version_is_refused(make_trainer: Make, tmp_path: Path) -> None:
    store, trainer = AdapterStore(tmp_path), make_trainer()
    directory = publish(store, 1, trainer)
    file = directory / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["base"]["revision"] = "0" * 64
    file.write_text(json.dumps(manifest))
    with pytest.raises(AdapterError, match="trained on base"):
        checkpoint.restore(directory, trainer)
    (directory / "optimizer.safetensors").write_bytes(b"no")
    with pytest.raises(AdapterError, match="cannot resume"):
        checkpoint.restore(directory, trainer)


def test_probe_is_chosen_where_the_candidate_changed_most(make_trainer: Make, make_samples: Samples) -> None:
    trainer, samples = make_trainer(), make_samples(8)
    trainer.step(samples, ANCHORS)
    long = Text(list(range(5, 200)) * 4, list(range(5, 200)) * 2)
    probe = json.loads(json.dumps(build_probe(trainer.policy, [*samples, long])))
    assert (probe["schema"], probe["temperature"]) == (2, 1.0)
    assert 1 <= len(probe["rows"]) <= 4 and 1 <= len(probe["positions"]) <= 24
    assert all(len(row["prompt_ids"]) + len(row["completion_ids"]) <= 512 for row in probe["rows"])
    changes = [abs(place["candidate"] - place["base"]) for place in probe["positions"]]
    assert changes == sorted(changes, reverse=True)
    assert probe["gap_base"] == changes[0] > 0.0
    rows = [Text(row["prompt_ids"], row["completion_ids"]) for row in probe["rows"]]
    for place in probe["positions"]:
        row = rows[place["row"]]
        behind = Text([*row.prompt_ids, *row.completion_ids[: place["index"]]], [place["token_id"]])
        assert float(trainer.policy.logprobs([behind])[0][0]) == pytest.approx(place["candidate"], abs=1e-5)
        assert place["parent"] == pytest.approx(place["base"], abs=1e-5)  # no teacher was set


def test_a_probe_asks_for_no_token_that_the_candidate_finds_unlikely() -> None:
    candidate, base = torch.tensor([[-0.5, -12.0], [-1.0, -4.0]]), torch.tensor([[-0.4, -2.0], [-1.5, -3.0]])
    policy = SimpleNamespace(
        likeliest=lambda rows, n: [(torch.tensor([[7, 8], [9, 10]]), candidate)], logprobs_at=lambda *_: [base]
    )
    probe = build_probe(cast(Any, policy), [Text([1], [2, 3])])
    assert [(place["index"], place["token_id"]) for place in probe["positions"]] == [(1, 10), (0, 7)]


def test_probe_without_rows_is_empty(make_trainer: Make) -> None:
    assert build_probe(make_trainer().policy, [])["positions"] == []
