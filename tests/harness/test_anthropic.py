"""The `anthropic` Python client on Messages: tools, thinking, retries, counted tokens."""

import pytest

from burnish.testing import Outcome, Scene, Script, Scripted, Step
from tests.harness.scenes import RETRIES, WALK
from tests.harness.stage import Stage

HARNESS = "anthropic"
DRIVER = "anthropic_messages.py"
THINKING = Scene("thinking", [Step([Scripted("So: @mark", reasoning="Hm, hm.")]), Step([Scripted("Bye. @mark")])])
SCRIPT = Script([WALK, RETRIES, THINKING])


@pytest.mark.parametrize("mode", ["whole", "streamed"])
def test_tools(stage: Stage, mode: str) -> None:
    assert stage.drive(DRIVER, mode) == {"text": f"Bye. walk.{mode}#4", "rounds": [2, 1, 0, 0]}
    assert stage.check(f"two rounds of tools, two of them parallel, {mode}").n_turns == 4


def test_retries(stage: Stage) -> None:
    assert stage.drive(DRIVER, "retries")["text"] == "Bye. retries#4"
    assert sum(truth.outcome is Outcome.REFUSED for truth in stage.truths) == 4
    stage.check("an engine that is full, fails, and cuts the connection")


def test_thinking(stage: Stage) -> None:
    assert stage.drive(DRIVER, "thinking")["text"] == "Bye. thinking#2"
    stage.check("thinking")


def test_counted_tokens(stage: Stage) -> None:
    assert stage.drive(DRIVER, "count") > 0
    assert stage.check("counted tokens").n_turns == 0
