"""The comparison: each side in its own process, rounds interleaved, medians of the rounds' ratios."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import IO

from benchmarks.learner.rows import prepare

HOME = Path(__file__).resolve().parents[2]
ENVIRONMENT = HOME / ".work" / "trl" / "venv"
PACKAGES = ("trl==1.16.0", "torch==2.13.0", "peft==0.21.2", "transformers==5.19.0")
MICRO_BATCHES, DEFAULT = (1, 2, 4, 8, 16), 8
Tell = Callable[[str], None]


class Worker:
    """A process that takes a step on request. Raises RuntimeError with its output if it ends instead."""

    def __init__(self, command: list[str], threads: int, log: Path) -> None:
        self._log = log
        environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "PYTHONPATH": f"{HOME / 'src'}{os.pathsep}{HOME}",
            "HF_HUB_OFFLINE": "1",
            "PYTHONWARNINGS": "ignore",
        }
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True
            )
        self.loaded = self._answer()["loaded_mib"]

    def step(self) -> dict[str, float]:
        """One step: seconds, loss, peak MiB above the loaded model so far."""
        stdin: IO[str] | None = self._process.stdin
        assert stdin is not None
        stdin.write("\n")
        stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process and wait for it."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("@"):
                found: dict[str, float] = json.loads(line[1:])
                return found
        raise RuntimeError(
            f"a worker ended with status {self._process.wait()}: {self._log.read_text(errors='replace')[-2000:]}"
        )


def measure(folder: Path, *, rounds: int, n_rows: int, longest: int, threads: int, tell: Tell) -> dict[str, float]:
    """Figures of the comparison. Each TRL micro-batch size takes one step first, and the fastest one is used."""
    python = environment(tell)
    tell("model and rows")
    figures = prepare(folder, n_rows=n_rows, longest=longest, threads=threads)
    here = Path(__file__).parent

    def theirs(micro: int, *flags: str) -> Worker:
        command = [str(python), str(here / "theirs.py"), str(folder), str(threads), str(micro), *flags]
        return Worker(command, threads, folder / f"trl-{micro}-{'-'.join(flags)}.log")

    chosen = [micro for micro in MICRO_BATCHES if n_rows % micro == 0]
    seconds: dict[int, float] = {}
    for micro in chosen:
        worker = theirs(micro)
        worker.step()  # the first one also warms up
        seconds[micro] = worker.step()["seconds"]
        tell(f"TRL, micro-batch {micro}: {seconds[micro]:.2f} s")
        figures[f"trl_step_s_micro_{micro}"] = seconds[micro]
        worker.close()
    best = min(seconds, key=lambda micro: seconds[micro])
    workers = {
        "ours": Worker(
            [sys.executable, str(here / "ours.py"), str(folder), str(threads)], threads, folder / "ours.log"
        ),
        "trl": theirs(best),
        "default": theirs(min(DEFAULT, n_rows), "default"),
        "compact": theirs(best, "compact"),
    }
    try:
        return figures | {"trl_best_micro_batch": best, "threads": threads} | _rounds(workers, rounds, tell)
    finally:
        for worker in workers.values():
            worker.close()


def _rounds(workers: Mapping[str, Worker], rounds: int, tell: Tell) -> dict[str, float]:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in workers}
    for i in range(rounds + 1):
        for name in workers:
            found[name].append(workers[name].step())
        tell(f"round {i}: " + ", ".join(f"{name} {steps[-1]['seconds']:.2f} s" for name, steps in found.items()))
    timed = {name: steps[1:] for name, steps in found.items()}  # the first one warms up

    def speedup(other: str) -> float:
        return median(b["seconds"] / a["seconds"] for a, b in zip(timed["ours"], timed[other], strict=True))

    differences = [
        abs(a["loss"] - b["loss"]) for name in found for a, b in zip(found["ours"], found[name], strict=True)
    ]
    peaks = {name: steps[-1]["peak_mib"] for name, steps in found.items()}
    return {
        "speedup_vs_trl": speedup("trl"),
        "speedup_vs_trl_default": speedup("default"),
        "speedup_vs_trl_compact": speedup("compact"),
        "memory_vs_trl": peaks["ours"] / peaks["trl"],
        "memory_vs_trl_compact": peaks["ours"] / peaks["compact"],
        "loss_difference": max(differences),
        "loss": found["ours"][0]["loss"],
        "loss_trl": found["trl"][0]["loss"],
        "step_s": median(step["seconds"] for step in timed["ours"]),
        **{f"{name}_step_s": median(step["seconds"] for step in timed[name]) for name in ("trl", "default", "compact")},
        **{f"{name}_peak_mib": peak for name, peak in peaks.items()},
    }


def environment(tell: Tell) -> Path:
    """The Python of TRL's own environment under .work/. It is created if it is missing."""
    python = ENVIRONMENT / "bin" / "python"
    if (
        python.exists()
        and not subprocess.run([python, "-c", "import trl.trainer.grpo_trainer"], capture_output=True).returncode
    ):
        return python
    tell(f"creating TRL's environment in {ENVIRONMENT.relative_to(HOME)}")
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    links = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS", "")
    ENVIRONMENT.parent.mkdir(parents=True, exist_ok=True)
    for command in (
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(ENVIRONMENT)],
        [uv, "pip", "install", "--quiet", "--python", str(python), *PACKAGES],
    ):  # fmt: skip
        done = subprocess.run(
            command, env=os.environ | {"UV_FIND_LINKS": links}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(
                f"cannot create TRL's environment ({' '.join(command[1:3])} failed): {done.stderr[-1000:]}"
            )
    return python
