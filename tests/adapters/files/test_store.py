"""The adapter store: complete or absent, never overwritten, and every kind of damage is named."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from burnish.adapters.files.store import PROBE, AdapterStore
from burnish.errors import AdapterError

FACTS = {"rank": 2, "alpha": 4, "targets": ["q_proj"], "parent": 0}
LAYER = "base_model.model.model.layers.0.self_attn.q_proj"


def safetensors(shapes: dict[str, list[int]]) -> bytes:
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 4 * shape[0] * shape[1]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(at)


def weights(rank: int = 2, layer: str = LAYER) -> bytes:
    return safetensors({f"{layer}.lora_A.weight": [rank, 8], f"{layer}.lora_B.weight": [8, rank]})


def fill(directory: Path, **contents: bytes) -> None:
    config = json.dumps({"r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}).encode()
    files = {"adapter_model.safetensors": weights(), "adapter_config.json": config, "state.json": b"{}", **contents}
    for name, content in files.items():
        (directory / name).write_bytes(content)


def publish(store: AdapterStore, version: int = 1, **contents: bytes) -> Path:
    with store.aside("agent", version) as directory:
        fill(directory, **contents)
        return store.publish("agent", version, directory, FACTS)


@pytest.fixture
def store(tmp_path: Path) -> AdapterStore:
    return AdapterStore(tmp_path / "adapters")


def test_a_version_is_published_whole_and_listed(store: AdapterStore) -> None:
    path = publish(store, 12)
    assert path == store.path("agent", 12) == store.root / "agent" / "v000012"
    assert store.versions("agent") == [12] and store.versions("other") == []
    manifest = store.verify("agent", 12)
    assert (manifest["agent"], manifest["version"], manifest["rank"]) == ("agent", 12, 2)
    assert manifest == store.manifest("agent", 12)
    assert [entry.name for entry in path.parent.iterdir()] == ["v000012"]


def test_a_failed_writer_leaves_nothing(store: AdapterStore) -> None:
    with pytest.raises(RuntimeError), store.aside("agent", 1) as directory:
        fill(directory)
        raise RuntimeError
    assert store.versions("agent") == [] and list((store.root / "agent").iterdir()) == []


def test_a_version_is_never_written_again(store: AdapterStore) -> None:
    publish(store)
    with pytest.raises(AdapterError, match="never reused"), store.aside("agent", 1):
        pass
    with store.aside("agent", 2) as directory:
        fill(directory)
        with pytest.raises(AdapterError, match="never reused"):
            store.publish("agent", 1, directory, FACTS)


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json", "state.json"])
def test_a_flipped_byte_is_found_in_every_file(store: AdapterStore, name: str) -> None:
    file = publish(store) / name
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(AdapterError, match=name):
        store.verify("agent", 1)


def damage_missing(directory: Path) -> None:
    (directory / "adapter_config.json").unlink()


def damage_pickle(directory: Path) -> None:
    (directory / "adapter_model.safetensors").rename(directory / "adapter_model.bin")


def damage_pickle_inside(directory: Path) -> None:
    (directory / "adapter_model.safetensors").write_bytes(b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00.")


def damage_truncated(directory: Path) -> None:
    file = directory / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])


def damage_surplus(directory: Path) -> None:
    (directory / "notes.json").write_text("{}")


def damage_manifest(directory: Path) -> None:
    (directory / "manifest.json").unlink()


def damage_manifest_text(directory: Path) -> None:
    (directory / "manifest.json").write_text("[]")


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (damage_missing, "adapter_config.json is missing"),
        (damage_pickle, "adapter_model.bin is a pickle"),
        (damage_pickle_inside, "adapter_model.safetensors is not a safetensors file"),
        (damage_truncated, "adapter_model.safetensors is not a safetensors file"),
        (damage_surplus, "notes.json is not in the manifest"),
        (damage_manifest, "manifest.json is missing"),
        (damage_manifest_text, "is not a manifest"),
    ],
)
def test_damage_is_named(store: AdapterStore, damage: Callable[[Path], None], named: str) -> None:
    damage(publish(store))
    with pytest.raises(AdapterError, match=named):
        store.verify("agent", 1)


@pytest.mark.parametrize(
    ("contents", "named"),
    [
        ({"adapter_model.safetensors": weights(rank=4)}, "not of rank 2"),
        ({"adapter_model.safetensors": weights(layer=LAYER.replace("q_", "k_"))}, "none of the targets"),
        ({"adapter_model.safetensors": safetensors({"model.q_proj.weight": [2, 8]})}, "no LoRA tensor"),
        ({"adapter_model.safetensors": safetensors({f"{LAYER}.lora_A.weight": [2, 8]})}, "only lora_A"),
        ({"adapter_model.safetensors": safetensors({})}, "no tensors"),
        ({"adapter_config.json": b'{"r": 4, "lora_alpha": 4, "target_modules": ["q_proj"]}'}, "has rank 4"),
        ({"adapter_config.json": b'{"r": 2, "lora_alpha": 8, "target_modules": ["q_proj"]}'}, "has alpha 8"),
        ({"adapter_config.json": b'{"r": 2, "lora_alpha": 4, "target_modules": ["o_proj"]}'}, "has targets"),
        ({"adapter_config.json": b"{}"}, "not a PEFT"),
    ],
)
def test_a_version_of_the_wrong_shape_is_not_even_published(
    store: AdapterStore, contents: dict[str, bytes], named: str
) -> None:
    with pytest.raises(AdapterError, match=named):
        publish(store, 1, **contents)
    assert store.versions("agent") == []


def test_a_directory_under_another_name_is_refused(store: AdapterStore) -> None:
    publish(store).rename(store.path("agent", 2))
    with pytest.raises(AdapterError, match="belongs to agent@v1"):
        store.verify("agent", 2)
    with pytest.raises(AdapterError, match="does not exist"):
        store.verify("agent", 1)


def test_sweep_sets_aside_what_steps_left_and_nothing_else(store: AdapterStore) -> None:
    for version in (1, 2, 3):
        publish(store, version)
    home = store.root / "agent"
    names = [".v000002.tmp-1", ".v000004.tmp-1", ".v000001.tmp-9", ".v000005.tmp-1", ".v000002.gone-1", "notes", "v2"]
    for name in names:
        (home / name).mkdir()
        (home / name / "adapter_model.safetensors").write_bytes(b"half")
    content = (store.path("agent", 2) / "adapter_model.safetensors").read_bytes()
    (store.path("agent", 2) / PROBE).write_text("{}")
    cleared = store.sweep("agent", unfinished={2, 4, 7})
    published = store.path("agent", 2)
    moved = cleared.pop(published)
    assert cleared == {home / name: None for name in names[:2]}
    assert moved is not None and not (moved / PROBE).exists()
    assert moved.parent == store.root / "quarantine" and moved.name.startswith("agent@v000002-")
    assert (moved / "adapter_model.safetensors").read_bytes() == content
    assert sorted(path.name for path in home.iterdir()) == sorted([*names[2:], "v000001", "v000003"])
    assert store.sweep("agent", unfinished={2, 4, 7}) == {}
    assert store.sweep("nobody", unfinished={1}) == {}
    assert store.highest() == {"agent": 3}


def test_a_number_may_be_set_aside_twice(store: AdapterStore) -> None:
    for _ in range(2):
        publish(store, 1)
        store.sweep("agent", unfinished={1})
    assert len(list((store.root / "quarantine").iterdir())) == 2


@pytest.mark.parametrize(("agent", "version"), [("../x", 1), ("", 1), ("a/b", 1), ("agent", 0)])
def test_names_cannot_leave_the_root(store: AdapterStore, agent: str, version: int) -> None:
    with pytest.raises(AdapterError, match="no adapter can be called"):
        store.path(agent, version)
