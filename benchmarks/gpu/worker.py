"""`python -m benchmarks.gpu.worker SIDE SHAPE REPORT`: one side on one shape, in a process of its own.

So memory is counted from nothing, and a card's error in one part is no other part's.
"""

import importlib
import json
import sys
from pathlib import Path

import torch

from benchmarks.gpu.shapes import SHAPES


def main() -> None:
    """Measure and write the figures. A model that does not fit is a figure too."""
    side, shape, report = sys.argv[1:]
    measure = importlib.import_module(f"benchmarks.gpu.{side}").measure
    try:
        found = measure(SHAPES[shape], "cpu" if shape == "tiny" else "cuda")
    except torch.OutOfMemoryError:
        found = {"out_of_memory": 1.0}
    Path(report).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
