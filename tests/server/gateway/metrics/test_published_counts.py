"""All processes added up, also after they have ended, each once."""

import json
import os
from pathlib import Path

from burnish.server.gateway.metrics import published
from burnish.server.gateway.metrics.counts import Sample
from burnish.server.gateway.metrics.published import IN_FLIGHT, Published, fold, folder_of, totals

KEY = ("requests", ("a", "200"))


def process(run_dir: Path, number: float) -> Published:
    def samples() -> list[Sample]:
        return [("requests", ("a", "200"), [number]), (IN_FLIGHT, (), [2.0])]

    made = Published(run_dir, samples)
    made._write()
    return made


def age(run_dir: Path) -> None:
    for path in folder_of(run_dir).glob("gateway-*.json"):
        os.utime(path, (1.0, 1.0))


def test_ended_processes_count_once_and_their_files_go(tmp_path: Path) -> None:
    one, two = process(tmp_path, 3.0), process(tmp_path, 4.0)
    assert totals(tmp_path) == {KEY: [7.0], (IN_FLIGHT, ()): [4.0]}
    one.close()
    age(tmp_path)
    for _ in range(2):
        fold(tmp_path)
        assert totals(tmp_path) == {KEY: [7.0], (IN_FLIGHT, ()): [2.0]}
    assert len(list(folder_of(tmp_path).glob("gateway-*.json"))) == 1
    two.close()


def test_a_crash_between_adding_and_removing_counts_nothing_twice(tmp_path: Path) -> None:
    one = process(tmp_path, 3.0)
    one.close()
    age(tmp_path)
    (file,) = folder_of(tmp_path).glob("gateway-*.json")
    text = file.read_text(encoding="utf-8")
    fold(tmp_path)
    file.write_text(text, encoding="utf-8")  # as if the process that folds had died before it removed the file
    assert totals(tmp_path)[KEY] == [3.0]
    age(tmp_path)
    fold(tmp_path)
    assert totals(tmp_path) == {KEY: [3.0]}
    assert not file.exists()


def test_a_broken_file_costs_only_itself(tmp_path: Path) -> None:
    one = process(tmp_path, 3.0)
    (folder_of(tmp_path) / "gateway-broken.json").write_text("[[", encoding="utf-8")
    assert totals(tmp_path)[KEY] == [3.0]
    one.close()


def test_a_histogram_with_other_buckets_begins_anew(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    folder.mkdir(parents=True)
    old = {"names": [], "samples": [["request_seconds", ["a"], [1, 1]]]}
    (folder / "ended.json").write_text(json.dumps(old), encoding="utf-8")
    (folder / "gateway-1.json").write_text(json.dumps([["request_seconds", ["a"], [2, 2, 2]]]), encoding="utf-8")
    assert published.totals(tmp_path) == {("request_seconds", ("a",)): [2, 2, 2]}
