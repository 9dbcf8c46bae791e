"""`make gpu-check` without a GPU: its arithmetic, its book-keeping, and all torch parts with a tiny model.

The parts run in an interpreter that has only what the list of needs names beside torch, transformers and PEFT.
"""

import itertools
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from transformers import AutoModelForCausalLM

from benchmarks.gpu import __main__ as check
from benchmarks.gpu import logprobs, ours, parts, plain, shapes, timing
from benchmarks.gpu import rows as agents
from benchmarks.gpu.parts import Part
from benchmarks.gpu.shapes import SHAPES, Shape

FACTS = {"device": "a card", "torch": "2"}
BARE = """import sys
from importlib.machinery import PathFinder
ABSENT = {absent!r}
class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if path is None and name in ABSENT else super().find_spec(name, path, target)
sys.meta_path[:] = [Bare if finder is PathFinder else finder for finder in sys.meta_path]
"""


def test_flops_by_hand() -> None:
    # one layer: q 4·6, k and v 4·3 each, o 6·4, and three maps of 4·8: 24 + 24 + 24 + 96
    shape = Shape(hidden=4, intermediate=8, layers=2, heads=2, kv_heads=1, head_dim=3, n_vocab=10)
    assert shape.n_linear == 2 * 168
    # 5 tokens, 2 of them predict, 5·6/2 pairs
    assert shape.flops(5, 2, 15, with_gradient=False) == 2 * 336 * 5 + 2 * 40 * 2 + 4 * 12 * 15
    assert shape.flops(5, 2, 15, with_gradient=True) == 4 * 336 * 5 + 4 * 40 * 2 + 12 * 12 * 15


@pytest.mark.parametrize(("name", "billions"), [("0.6b", 0.60), ("1.7b", 1.72), ("4b", 4.02), ("8b", 8.19)])
def test_a_shape_is_the_model_that_it_is_named_after(name: str, billions: float) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shapes.config(SHAPES[name]))
    layers = [m for m in model.get_decoder().modules() if isinstance(m, torch.nn.Linear)]
    assert SHAPES[name].n_linear == sum(layer.weight.numel() for layer in layers)
    assert sum(p.numel() for p in model.parameters()) / 1e9 == pytest.approx(billions, abs=0.01)


def test_rows_are_sessions_within_the_lengths_and_share_their_beginnings() -> None:
    rows = agents.agent_rows(SHAPES["8b"])
    assert len(rows) == agents.N_ROWS and rows == agents.agent_rows(SHAPES["8b"])
    for row in rows:
        assert 512 <= len(row["prompt_ids"]) <= 2048 and 128 <= len(row["completion_ids"]) <= 512
    turns = [pair for pair in itertools.pairwise(rows) if pair[0]["session"] == pair[1]["session"]]
    assert len(turns) > agents.N_ROWS / 2
    for one, two in turns:
        said = [*one["prompt_ids"], *one["completion_ids"]]
        assert two["prompt_ids"][: len(said)] == said


def test_our_flops_are_counted_with_a_shared_beginning_once() -> None:
    shape = SHAPES["tiny"]
    base = shapes.build(shape, "cpu")
    policy, counter = ours.policy_of(base, "cpu"), ours.Counter(base, shape)
    row = agents.agent_rows(shape)[0]
    n = len(row["prompt_ids"]) + len(row["completion_ids"]) - 1
    counter.flops = 0.0
    policy.logprobs(ours.texts([row]))
    alone = shape.flops(n, len(row["completion_ids"]), n * (n + 1) // 2, with_gradient=False)
    assert counter.flops == alone
    changed = row | {"completion_ids": row["completion_ids"][::-1]}
    counter.flops = 0.0
    policy.logprobs(ours.texts([row, changed]))
    assert alone < counter.flops < 2 * alone


def test_a_size_that_does_not_fit_ends_the_sweep_and_is_named() -> None:
    def take(size: int) -> float:
        if size > 2:
            raise torch.OutOfMemoryError("no")
        return 3e12

    found = timing.sweep(take, (1, 2, 4, 8), "cpu")
    assert set(found) == {1, 2}
    best = timing.best_of(found, (1, 2, 4, 8), 100.0, "cpu")
    assert best["out_of_memory_at_micro"] == 4.0 and best["tflop_per_step"] == 3.0
    assert best["mfu_is_absent"] == "no known peak of a CPU" and "mfu" not in best
    assert timing.best_of({}, (1,), 100.0, "cpu") == {"out_of_memory": 1.0}


def part(name: str, code: str, minutes: float = 0.01, needs: tuple[str, ...] = ()) -> Part:
    return Part(name, [sys.executable, "-c", code], minutes, needs)


def writes(text: str) -> str:
    return f"open('report.json', 'w').write({text!r})"


def test_every_part_ends_in_a_state_with_its_figures_or_its_reason(tmp_path: Path) -> None:
    chosen = [
        part("good/4b", writes('{"step_s": 2.0}') + "; raise SystemExit(1)"),  # a missed bar is a figure
        part("bad", "raise SystemExit('no such card')"),
        part("bare", writes("{}"), needs=("torch", "no-such-thing", "nor-this|torch")),
        part("long", writes("{}"), minutes=50.0),
        part("short", writes('{"x": 1}')),
    ]
    found = check.run(chosen, tmp_path, FACTS, 2.0)
    states = {"good/4b": "measured", "bad": "failed", "bare": "skipped", "long": "not begun", "short": "measured"}
    assert {name: outcome["state"] for name, outcome in found.items()} == states
    assert found["bad"]["reason"] == "status 1: no such card"
    assert found["bare"]["reason"] == "not installed: no-such-thing"
    assert found["long"]["reason"].startswith("needs about 50 min, ")
    files = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.json")}
    assert {name for name in files if not name.startswith(".work")} == {"good/4b.json", "short.json", "summary.json"}
    assert {"device": "a card", "step_s": 2.0}.items() <= json.loads((tmp_path / "good/4b.json").read_text()).items()
    assert json.loads((tmp_path / "summary.json").read_text())["parts"] == found


def test_a_second_run_measures_only_what_has_no_figures(tmp_path: Path) -> None:
    check.run([part("a", writes('{"x": 1}')), part("b", "1 / 0")], tmp_path, FACTS, 1.0)
    mended = [part("a", writes('{"x": 2}')), part("b", writes('{"x": 2}'))]
    found = check.run(mended, tmp_path, FACTS, 1.0)
    assert [(o["state"], o["figures"]["x"]) for o in found.values()] == [("kept", 1), ("measured", 2)]
    found = check.run(mended, tmp_path, FACTS, 1.0, only=["b"], again=True)
    assert [o["state"] for o in found.values()] == ["kept", "measured"]
    found = check.run(mended, tmp_path, FACTS, 1.0, again=True)
    assert [(o["state"], o["figures"]["x"]) for o in found.values()] == [("measured", 2), ("measured", 2)]


def test_a_part_is_ended_when_the_time_is_up(tmp_path: Path) -> None:
    with pytest.raises(parts.OutOfTime):
        parts.measure(part("slow", "import time; time.sleep(600)"), 0.0, tmp_path)


def test_only_figures_of_one_device_are_compared() -> None:
    def outcome(seconds: float, device: str) -> check.Outcome:
        return {"state": "measured", "figures": {"step_s": seconds, "device": device, "mfu": 0.3}}

    found = {"ours/4b": outcome(1.0, "H100"), "trl/4b": outcome(3.0, "H100"), "plain/4b": outcome(3.0, "H200")}
    expected = {"speedup_vs_trl/4b": 3.0, "speedup_vs_plain/4b": "measured on two devices"}
    assert check.compared(found) == expected
    assert {key: is_met for key, (*_, is_met) in check.verdicts(found).items()} == {
        "mfu/4b": False, "speedup_vs_trl/4b": True,
    }  # fmt: skip


def closure(names: tuple[str, ...]) -> set[str]:
    """The distributions that `names` bring along."""
    found, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        try:
            needs = [Requirement(text) for text in metadata.requires(name) or []]
        except metadata.PackageNotFoundError:
            continue
        waiting += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


def test_all_sides_do_the_same_work_on_the_same_model() -> None:
    shape = SHAPES["tiny"]
    mine, other, gaps = ours.measure(shape, "cpu"), plain.measure(shape, "cpu"), logprobs.measure(shape, "cpu")
    assert mine["first_grad_norm"] == pytest.approx(other["first_grad_norm"], rel=1e-4)
    assert mine["n_row_tokens"] == other["n_row_tokens"]
    assert 0.0 < float(mine["tflop_per_step"]) < float(other["tflop_per_step"])  # beginnings are shared
    assert float(mine["recipe_tflop_per_step"]) > float(mine["tflop_per_step"])
    assert 0.0 < float(gaps["ours_vs_plain_max"]) < 1e-4


def test_the_learner_runs_on_a_machine_with_no_more_than_it_names(tmp_path: Path) -> None:
    present = closure(("torch", "transformers", "peft")) | {"burnish", *parts.LEARNER}
    absent = {
        module
        for module, names in metadata.packages_distributions().items()
        if not {name.lower().replace("_", "-") for name in names} & present
    }
    assert {"fastapi", "msgspec", "openai", "vllm"} <= absent
    (tmp_path / "sitecustomize.py").write_text(BARE.format(absent=absent))
    command = [sys.executable, "-m", "benchmarks.gpu", "--tiny", "--only", "ours", "--only", "trl"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out")], env=environment, cwd=parts.HOME, capture_output=True, text=True
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    found = json.loads((tmp_path / "out" / "summary.json").read_text())["parts"]
    assert found["ours/tiny"]["state"] == "measured" and found["ours/tiny"]["figures"]["device"] == "cpu"
    assert found["plain/tiny"] == {"state": "not begun", "reason": "not asked for"}
    assert found["trl/tiny"] == {"state": "skipped", "reason": "not installed: datasets, trl"}


def test_without_a_card_nothing_is_measured(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    with pytest.raises(SystemExit, match="expected a CUDA device, found none"):
        check.main(["--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        check.main(["--only", "theirs"])
    assert not list(tmp_path.iterdir())
