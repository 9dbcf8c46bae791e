"""Two ranks under torchrun take the step that one rank takes alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from burnish.learner.data.rows import Text
from burnish.learner.model.ranks import Ranks

_STEP = """
import json, sys
from pathlib import Path
import torch
sys.path[:0] = [sys.argv[3], sys.argv[4], sys.argv[5]]
from conftest import make_samples, make_trainer
from tiny import perturb
from burnish.learner.model.ranks import Ranks

base = Path(sys.argv[1])
ranks = Ranks.from_environment("cpu")
samples = make_samples.__wrapped__(base)(8)
trainer = make_trainer.__wrapped__(base)()
trainer.ranks = ranks
perturb(trainer.policy, 0.05)
caught = {}
take = trainer.optimizer.step
def catch():
    caught.update({name: p.grad.tolist() for name, p in trainer.policy.parameters().items()})
    take()
trainer.optimizer.step = catch
metrics = dict(trainer.step(samples).metrics)
after = {name: p.tolist() for name, p in trainer.policy.parameters().items()}
trainer.objectives[0].objective.clip["clip_low"] = float("nan")
broken = trainer.step(samples).reason
Path(sys.argv[2], f"{ranks.size}-{ranks.rank}.json").write_text(json.dumps([metrics, caught, after, broken]))
"""


def run(folder: Path, base_dir: Path, n_ranks: int) -> list[list[dict[str, object]]]:
    script = folder / "step.py"
    script.write_text(_STEP, encoding="utf-8")
    here = Path(__file__).parents[1]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_ranks}"]
    command = [
        *launch,
        str(script),
        str(base_dir),
        str(folder),
        str(here),
        str(here.parents[1]),
        str(here.parents[1] / "src"),
    ]
    subprocess.run(command, check=True, timeout=200)
    return [json.loads((folder / f"{n_ranks}-{rank}.json").read_text()) for rank in range(n_ranks)]


@pytest.mark.timeout(400)
def test_two_ranks_take_the_step_of_one(tmp_path: Path, base_dir: Path) -> None:
    [alone], both = run(tmp_path, base_dir, 1), run(tmp_path, base_dir, 2)
    for metrics, gradients, after, broken in both:
        for name in (
            "loss",
            "loss/policy_gradient",
            "loss/distillation",
            "loss/kl_to_base",
            "entropy",
            "policy_gradient/ratio",
        ):
            assert metrics[name] == pytest.approx(alone[0][name], abs=1e-5), name
        for name, gradient in gradients.items():
            assert torch.allclose(torch.tensor(gradient), torch.tensor(alone[1][name]), atol=1e-5), name
        assert after == both[0][2]  # the same bits on every rank
        assert broken is not None and "the weights are unchanged" in broken


def test_shares_are_balanced_and_leave_nothing_out() -> None:
    rows = [Text([1] * n, [2]) for n in (50, 3, 20, 20, 9, 1)]
    batches = [[i] for i in range(len(rows))]
    shares = [Ranks(rank, 2).share(batches, rows) for rank in (0, 1)]
    assert sorted(i for share in shares for [i] in share) == list(range(6))
    loads = [sum(len(rows[i].prompt_ids) for [i] in share) for share in shares]
    assert abs(loads[0] - loads[1]) <= 10
    assert Ranks().share(batches, rows) == batches
