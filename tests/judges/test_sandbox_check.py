"""The sandbox's judge on a real engine passes the check that ships with it."""

import json
from pathlib import Path

import pytest

from benchmarks.judging import sandbox
from burnish.judges import permits
from burnish.records import Fitness


@pytest.mark.engine
def test_the_sandboxs_judge_passes_its_check(tmp_path: Path) -> None:
    found = sandbox.measure(tmp_path)
    assert (found.state, found.reason) == (Fitness.FIT, "")
    known = json.loads(permits.IN_ADVANCE.read_text())["figures"]
    assert found.figures.kappa == pytest.approx(known["kappa"], abs=0.03)
