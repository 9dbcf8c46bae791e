"""The gateway benchmark's figures: results of `make test-harness` count if they exist."""

import json
from pathlib import Path

from benchmarks.gateway.report import trainable

ROUTES = {"chat": 1.0, "messages": 0.99}


def test_the_worst_route_is_told_where_no_harness_was_run(tmp_path: Path) -> None:
    assert trainable(ROUTES, tmp_path / "none.json") == {"trainable_share_routes": 0.99, "trainable_share": 0.99}


def test_a_harness_that_is_worse_than_every_route_is_the_worst(tmp_path: Path) -> None:
    rows = [
        {"n_eligible": 4, "n_trainable": 4},
        {"n_eligible": 4, "n_trainable": 3},
        {"n_eligible": 0, "n_trainable": 0},
    ]
    (tmp_path / "report.json").write_text(json.dumps({"rows": rows}), encoding="utf-8")
    found = trainable(ROUTES, tmp_path / "report.json")
    assert found == {"trainable_share_routes": 0.99, "trainable_share_harnesses": 0.75, "trainable_share": 0.75}
