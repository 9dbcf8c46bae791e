"""`python -m benchmarks.gpu [--only PART] [--out DIR] [--minutes M] [--again] [--tiny]`: one CUDA card, part by part.

Each part's figures are written to DIR/<part>.json as soon as it ends, and such a file is not measured again. So a run
that was cut off goes on where it was. DIR/summary.json holds all figures, and for each part without any the reason.
Standard library only: every part is a process of its own.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu import parts
from benchmarks.gpu.parts import HOME, Part
from benchmarks.gpu.shapes import SHAPES

SHOWN = ("tokens_per_s", "mfu", "peak_gib", "step_s", "best_micro", "out_of_memory", "ours_vs_fp32_mean")
PROBE = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else 'cpu')"
VERSIONS = ("torch", "transformers", "peft", "trl", "vllm")
Outcome = dict[str, Any]
"""`state` (measured, kept, skipped, not begun, out of time, failed), with `figures` or with the `reason`."""


def run(
    known: Sequence[Part],
    out: Path,
    facts: Mapping[str, str],
    minutes: float,
    *,
    only: Sequence[str] = ("",),
    again: bool = False,
) -> dict[str, Outcome]:
    """Measure what is missing of `only` within `minutes`. Returns the outcome of every part, as the summary keeps it.

    `only` are names of parts, of their kinds (`ours`), or the empty name, which is all.
    """
    deadline = time.monotonic() + 60.0 * minutes
    outcomes: dict[str, Outcome] = {}
    for part in known:
        is_asked = any(is_in(part, name) for name in only)
        outcomes[part.name] = _outcome(part, out, facts, deadline, is_asked=is_asked, again=again)
        if is_asked:
            _tell(part.name, outcomes[part.name])
        text = json.dumps({**facts, "parts": outcomes, "compared": compared(outcomes)}, indent=1)
        (out / "summary.json").write_text(text + "\n", encoding="utf-8")
    return outcomes


def _outcome(
    part: Part, out: Path, facts: Mapping[str, str], deadline: float, *, is_asked: bool, again: bool
) -> Outcome:
    file = out / f"{part.name}.json"
    left = deadline - time.monotonic()
    if file.exists() and not (is_asked and again):
        return {"state": "kept", "figures": json.loads(file.read_text(encoding="utf-8"))}
    if not is_asked:
        return {"state": "not begun", "reason": "not asked for"}
    if absent := parts.missing(part.needs):
        return {"state": "skipped", "reason": f"not installed: {', '.join(absent)}"}
    if left < 60.0 * part.minutes:
        return {"state": "not begun", "reason": f"needs about {part.minutes:g} min, {max(0.0, left) / 60:.1f} are left"}
    print(f"{time.strftime('%H:%M:%S')} {part.name}, at most about {part.minutes:g} min", flush=True)
    began = time.monotonic()
    try:
        found = parts.measure(part, left, out / ".work")
    except parts.OutOfTime as error:
        return {"state": "out of time", "reason": str(error)}
    except parts.Failed as error:
        return {"state": "failed", "reason": str(error)}
    figures = {**facts, "date": time.strftime("%Y-%m-%d"), "wall_s": round(time.monotonic() - began, 1), **found}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return {"state": "measured", "figures": figures}


def is_in(part: Part, name: str) -> bool:
    """Whether `name` is the part's, its kind's, or empty."""
    return name in ("", part.name, part.name.partition("/")[0])


def compared(outcomes: Mapping[str, Outcome]) -> dict[str, float | str]:
    """How many times faster ours is than each other side on the same shape. Only figures of one device are compared."""
    found: dict[str, float | str] = {}
    for name, outcome in outcomes.items():
        side, _, shape = name.partition("/")
        theirs, ours = outcome.get("figures", {}), outcomes.get(f"ours/{shape}", {}).get("figures", {})
        if side in ("plain", "trl") and "step_s" in theirs and "step_s" in ours:
            key, is_same = f"speedup_vs_{side}/{shape}", theirs["device"] == ours["device"]
            found[key] = theirs["step_s"] / ours["step_s"] if is_same else "measured on two devices"
    return found


def verdicts(outcomes: Mapping[str, Outcome]) -> dict[str, tuple[float, str, bool]]:
    """The bars that were measured: the figure, the bar in words, and whether it is met."""
    found: dict[str, tuple[float, str, bool]] = {}
    for name, outcome in outcomes.items():
        figures = outcome.get("figures", {})
        if name.startswith("ours/") and "mfu" in figures:
            found[f"mfu/{name.removeprefix('ours/')}"] = (figures["mfu"], "≥ 0.4", figures["mfu"] >= 0.4)
        if (gap := figures.get("ours_vs_fp32_mean")) is not None:
            found[f"ours_vs_fp32_mean/{name.removeprefix('logprobs/')}"] = (gap, "≤ 1e-2", gap <= 1e-2)
    for key, value in compared(outcomes).items():
        if key.startswith("speedup_vs_trl/") and key != "speedup_vs_trl/tiny" and isinstance(value, float):
            found[key] = (value, "≥ 2", value >= 2.0)
    return found


def _tell(name: str, outcome: Outcome) -> None:
    figures = outcome.get("figures", {})
    shown = [key for key in SHOWN if key in figures] or [key for key, value in figures.items() if key not in _FACTS]
    text = ", ".join(f"{key} {_text(figures[key])}" for key in shown[:8])
    print(f"  {name:<14} {outcome['state']:<12} {outcome.get('reason') or text}", flush=True)


_FACTS = ("device", *VERSIONS, "date", "wall_s")


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def probe() -> dict[str, str]:
    """The device and the versions, from a process of its own. Exits with the reason if torch cannot be used."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"torch cannot be used: {done.stderr.strip().splitlines()[-1]}")
    installed = {name: parts.version(name) for name in VERSIONS}
    return {"device": done.stdout.strip().splitlines()[-1]} | {name: v for name, v in installed.items() if v}


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, measure, print. Returns 1 if a part failed or a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", action="append", help="a part (ours/4b) or all parts of a kind (ours); repeatable")
    parser.add_argument("--out", type=Path, help="folder of the figures (default: docs/results/gpu)")
    parser.add_argument("--minutes", type=float, default=20.0, help="begin no part that would not end in this time")
    parser.add_argument("--again", action="store_true", help="measure parts again that have figures")
    parser.add_argument("--tiny", action="store_true", help="try the learner's parts on the CPU with a tiny model")
    given = parser.parse_args(arguments)
    out: Path = given.out or (HOME / ".work" / "gpu-tiny" if given.tiny else HOME / "docs" / "results" / "gpu")
    shapes = ["tiny"] if given.tiny else [name for name in SHAPES if name != "tiny"]
    known = [*parts.learner_parts(shapes), *([] if given.tiny else parts.serving_parts())]
    only = given.only or [""]
    if unknown := [name for name in only if not any(is_in(part, name) for part in known)]:
        parser.error(f"no part {unknown[0]!r}; the parts are {', '.join(part.name for part in known)}")
    facts = probe()
    if given.tiny:
        facts["device"] = "cpu"
    elif facts["device"] == "cpu":
        raise SystemExit("expected a CUDA device, found none; `--tiny` tries the logic on the CPU")
    out.mkdir(parents=True, exist_ok=True)
    print(", ".join(f"{key} {value}" for key, value in facts.items()), flush=True)
    outcomes = run(known, out, facts, given.minutes, only=only, again=given.again)
    bars = verdicts(outcomes)
    for key, (value, bar, is_met) in bars.items():
        print(f"  {key:<28} {_text(value):>8}  {bar:<7} {'✓' if is_met else '✗'}")
    print(f"written to {out}")
    is_failed = any(outcome["state"] == "failed" for outcome in outcomes.values())
    return 1 if is_failed or not all(is_met for *_, is_met in bars.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
