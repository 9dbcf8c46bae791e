"""The recipe that made the shipped weights: `python -m burnish.sandbox.training.build_model --out DIR [--further DIR]`.

Builds the tokenizer from the corpus, trains the model, measures it, and writes both with `manifest.json`: recipe
version, seed, steps, the SHA-256 of every file, the measured figures. Guarantees: everything is written aside and
appears in `--out` only when complete. The same seed, steps and thread count on the same machine give the same bytes
(except the manifest's time).

`--further DIR` trains one more round from the weights in DIR, with the tokenizer unchanged, after a prompt's words have
changed. The manifest then names those weights, and the new figures replace theirs.

On a machine that does other work as well, set OMP_WAIT_POLICY=PASSIVE: threads that spin while they wait for one
another made a step four times slower there.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

from burnish.sandbox.training import corpus, judging_rows
from burnish.sandbox.training.measure import measure
from burnish.sandbox.training.tokenizer import build_tokenizer
from burnish.sandbox.training.training import FURTHER, ROUNDS, Round, build_model, is_fast_here, n_parameters, train

VERSION = 2
"""Raised whenever the same arguments would give other weights."""

MANIFEST = "manifest.json"
DEFAULT_STEPS, DEFAULT_SEED, DEFAULT_THREADS = 3200, 0, 2
FURTHER_STEPS = 600
_TOKENIZER_ROWS = 1500
_LOSS_WINDOW = 20


def build(out: Path, n_steps: int, seed: int, n_threads: int, n_samples: int = 400) -> dict[str, Any]:
    """Make the model, put it at `out`, and return its manifest. `n_samples` 0 skips measuring."""
    started = time.monotonic()
    torch.set_num_threads(n_threads)
    torch.manual_seed(seed)
    tokenizer = build_tokenizer(_tokenizer_texts(seed))
    model = build_model(tokenizer)
    losses = _train_with_progress(model, tokenizer, n_steps, seed)
    return _finish(model, tokenizer, out, losses, started, seed, n_threads, n_samples)


def build_further(
    out: Path,
    folder: Path,
    n_steps: int,
    seed: int,
    n_threads: int,
    n_samples: int = 400,
    rounds: Sequence[Round] = FURTHER,
) -> dict[str, Any]:
    """One more round from the weights in `folder`, otherwise as `build`. `out` may be `folder`. Raises OSError if it
    has no model.
    """
    started = time.monotonic()
    torch.set_num_threads(n_threads)
    torch.manual_seed(seed)
    before = {"sha256": digests(folder)["model.safetensors"]} | _history(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    losses = _train_with_progress(model, tokenizer, n_steps, f"{seed} further {before['sha256']}", rounds)
    return _finish(model, tokenizer, out, losses, started, seed, n_threads, n_samples, before)


def _history(folder: Path) -> dict[str, Any]:
    """The origin of the weights in `folder`, from its manifest."""
    path = folder / MANIFEST
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {
        name: known[name] for name in ("recipe", "seed", "steps", "training_seconds", "further_from") if name in known
    }


def _finish(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    out: Path,
    losses: Sequence[float],
    started: float,
    seed: int,
    n_threads: int,
    n_samples: int,
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Measure, and publish with the manifest."""
    manifest: dict[str, Any] = {
        "recipe": VERSION,
        "seed": seed,
        "steps": len(losses),
        "threads": n_threads,
        "parameters": n_parameters(model),
        "training_seconds": round(time.monotonic() - started),
        "first_loss": losses[0],
        "final_loss": sum(losses[-_LOSS_WINDOW:]) / len(losses[-_LOSS_WINDOW:]),
        "torch": torch.__version__,
        "measured": measure(model, tokenizer, n_samples, seed=seed + 1) if n_samples else {},
    } | ({"further_from": before} if before else {})
    return publish(model, tokenizer, out, manifest)


def publish(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path, manifest: dict[str, Any]
) -> dict[str, Any]:
    """Write the model aside, complete the manifest with the files' digests, and rename the folder to `out`."""
    aside = out.with_name(f".{out.name}.{os.getpid()}")
    model.save_pretrained(aside)
    tokenizer.backend_tokenizer.no_padding()  # measuring leaves its own padding behind, which would be saved
    tokenizer.save_pretrained(aside)
    for path in aside.iterdir():
        path.chmod(0o644)  # safetensors writes 0600, which a server under another user could not read
    manifest = {**manifest, "sha256": digests(aside)}
    (aside / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    old = aside.with_name(f"{aside.name}.old")
    if out.exists():
        out.rename(old)
    aside.rename(out)
    shutil.rmtree(old, ignore_errors=True)
    return manifest


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file in `folder` except the manifest."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != MANIFEST
    }


def _tokenizer_texts(seed: int) -> Iterator[str]:
    rng = random.Random(f"tokenizer {seed}")
    for _ in range(_TOKENIZER_ROWS):
        for row in (corpus.draw_row(rng), judging_rows.draw_row(rng)):
            for message in row.messages:
                yield str(message["content"])
                yield from (call["function"]["arguments"] for call in message.get("tool_calls", []))
            yield from (json.dumps(tool["function"]) for tool in row.tools or [])


def _train_with_progress(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    n_steps: int,
    seed: int | str,
    rounds: Sequence[Round] = ROUNDS,
) -> list[float]:
    losses: list[float] = []
    columns = (
        TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]:.3f}"),
        TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns) as progress:
        bar = progress.add_task("training", total=n_steps, loss=float("nan"))

        def on_step(loss: float) -> None:
            losses.append(loss)
            recent = sum(losses[-_LOSS_WINDOW:]) / len(losses[-_LOSS_WINDOW:])
            progress.update(bar, completed=len(losses), loss=recent)
            if not progress.console.is_terminal and len(losses) % _LOSS_WINDOW == 0:
                print(
                    f"{time.strftime('%H:%M:%S')} step {len(losses)} of {n_steps}, loss {recent:.3f}",
                    file=sys.stderr,
                    flush=True,
                )

        train(model, tokenizer, n_steps, seed, on_step, rounds)
    return losses


def main() -> None:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(
        prog="python -m burnish.sandbox.training.build_model", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to; replaced if it exists")
    parser.add_argument(
        "--further", type=Path, help="folder with a model to take one more round from, instead of fresh weights"
    )
    parser.add_argument(
        "--steps", type=int, help=f"training steps; {DEFAULT_STEPS}, or {FURTHER_STEPS} for one more round"
    )
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="seed of weights and rows")
    parser.add_argument(
        "--threads", type=int, default=DEFAULT_THREADS, help="torch threads; part of what fixes the bytes"
    )
    parser.add_argument("--samples", type=int, default=400, help="samples per measured figure; 0 skips measuring")
    given = parser.parse_args()
    if not is_fast_here():
        print(
            "warning: this CPU has no bfloat16 instructions; steps are taken in float32, which takes longer",
            file=sys.stderr,
        )
    given.out.parent.mkdir(parents=True, exist_ok=True)
    if given.further is None:
        manifest = build(given.out, given.steps or DEFAULT_STEPS, given.seed, given.threads, given.samples)
    elif (given.further / "model.safetensors").exists():
        n_steps = given.steps or FURTHER_STEPS
        manifest = build_further(given.out, given.further, n_steps, given.seed, given.threads, given.samples)
    else:
        parser.error(
            f"--further: there is no model.safetensors in {given.further}; give a folder that this recipe wrote"
        )
    print(json.dumps(manifest, indent=2))


if __name__ == "__main__":
    main()
