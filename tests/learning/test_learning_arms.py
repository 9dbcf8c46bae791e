"""Every arm of every part can be run: its agent's name and its settings are ones that Burnish takes."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning import stack
from benchmarks.learning.drill.arms import ARMS as DRILL
from benchmarks.learning.style.arms import ARMS as STYLE
from benchmarks.learning.tools.arms import ARMS as TOOLS
from benchmarks.real_model import first, trial
from benchmarks.real_model.continual.part import ARMS as CONTINUAL
from benchmarks.real_model.english.arms import ARMS as ENGLISH
from burnish import config

ALL = [arm for arms in (STYLE, TOOLS, DRILL, ENGLISH, CONTINUAL, trial.ARMS, first.ARMS) for arm in arms.values()]


@pytest.mark.parametrize("arm", ALL, ids=lambda arm: arm.name)
def test_an_arm_is_one_that_burnish_takes(arm: Any, tmp_path: Path) -> None:
    name = stack.agent_name(arm.name, 10)
    settings = config.load(flags={**arm.flags(10), "agent.name": name, "state_dir": str(tmp_path)})

    assert (settings.agent.name, settings.recipe.seed) == (name, 10)


def test_arms_without_groups_have_none() -> None:
    for arms, model, others in ((STYLE, {}, set()), (ENGLISH, {"engine.model": "a/real-one"}, {"shuffled"})):
        drawing = {name for name, arm in arms.items() if config.load(flags={**model, **arm.flags(0)}).has_groups}
        assert drawing == {name for name in arms if "groups" in name} | others
