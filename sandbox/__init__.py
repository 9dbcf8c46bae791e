"""A small world that learns in minutes on a CPU: its language, its base model, and its simulated users.

`world` needs no torch. Only `training` needs torch and transformers.
"""

from pathlib import Path

MODEL = Path(__file__).parent / "model"
"""The shipped base model: a directory that transformers and vLLM load."""

DATA = Path(__file__).parent / "data"
"""The shipped prompt sets: `retention.jsonl` and `anchors.jsonl`."""
