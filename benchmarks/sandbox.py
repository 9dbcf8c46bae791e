"""What the sandbox's base model can do: `python -m benchmarks.sandbox [--model DIR] [--samples N] [--json FILE]`.

Samples replies with transformers (no engine) and prints one share per line. `burnish.sandbox.training.measure` explains
them.
"""

import argparse
import json
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer

from burnish.sandbox import MODEL
from burnish.sandbox.training.measure import measure


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sandbox", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", type=Path, default=MODEL, help="model folder (default: the shipped model)")
    parser.add_argument("--samples", type=int, default=400, help="samples per figure")
    parser.add_argument("--threads", type=int, default=2, help="torch threads")
    parser.add_argument("--seed", type=int, default=1, help="seed of prompts and sampling")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model = AutoModelForCausalLM.from_pretrained(given.model).eval()
    figures = measure(model, AutoTokenizer.from_pretrained(given.model), given.samples, given.seed)
    table = Table("figure", "share", title=f"{given.model} ({given.samples} samples each)")
    for name, value in figures.items():
        table.add_row(name, f"{value:.3f}")
    Console().print(table)
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
