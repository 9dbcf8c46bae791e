"""LangChain's ChatOpenAI with bound tools: chat completions and Responses."""

import pytest

from burnish.testing import Script
from tests.harness.scenes import WALK
from tests.harness.stage import Stage

HARNESS = "langchain"
SCRIPT = Script([WALK])


@pytest.mark.parametrize("mode", ["whole", "streamed", "responses"])
def test_tools(stage: Stage, mode: str) -> None:
    assert stage.drive("langchain_agent.py", mode) == {"text": f"Bye. walk.{mode}#4", "rounds": [2, 1, 0, 0]}
    assert stage.check(f"two rounds of tools, {mode}").n_turns == 4
