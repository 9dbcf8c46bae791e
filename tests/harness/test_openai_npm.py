"""The `openai` npm client: chat completions, its own tool runner, Responses."""

from burnish.testing import Outcome, Script
from tests.harness.scenes import RETRIES, WALK
from tests.harness.stage import Stage

HARNESS = "openai-npm"
SCRIPT = Script([WALK, RETRIES])
DRIVER = "openai_chat.mjs"


def test_tools(stage: Stage) -> None:
    assert stage.drive(DRIVER, "whole") == {"text": "Bye. walk.whole#4", "rounds": [2, 1, 0, 0]}
    assert stage.drive(DRIVER, "streamed")["text"] == "Bye. walk.streamed#4"
    assert stage.drive(DRIVER, "runner")["text"] == "I saw it: walk.runner#3"
    assert stage.check("two rounds of tools, two of them parallel, whole, streamed and by its own runner").n_turns == 11


def test_retries(stage: Stage) -> None:
    assert stage.drive(DRIVER, "retries")["text"] == "retries#3"
    assert sum(truth.outcome is Outcome.REFUSED for truth in stage.truths) == 4
    stage.check("an engine that is full, fails, and cuts the connection")


def test_responses(stage: Stage) -> None:
    assert stage.drive(DRIVER, "responses") == {"text": "I saw it: walk.responses#3", "rounds": [2, 1, 0]}
    assert stage.check("Responses, streamed").n_turns == 3
