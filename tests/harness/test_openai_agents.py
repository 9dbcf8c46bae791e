"""The OpenAI Agents SDK: Responses by default, chat completions, an agent as another's tool."""

import pytest

from burnish.testing import Scene, Script, Scripted, Step
from tests.harness.scenes import WALK
from tests.harness.stage import Stage

HARNESS = "openai-agents"
ASK = Scripted("", [("ask_reader", '{"input": "scene:reader @mark please"}'), ("look", '{"at": "@mark"}')])
SCRIPT = Script(
    [
        WALK,
        Scene("guide", [Step([ASK]), Step([Scripted("Done. @mark")]), Step([Scripted("Bye. @mark")])]),
        Scene(
            "reader",
            [Step([Scripted("", [("read", '{"at": "@mark"}')])]), Step([Scripted("It says: @mark")])],
            parent="guide",
        ),
    ]
)


@pytest.mark.parametrize("mode", ["streamed", "whole", "chat"])
def test_tools(stage: Stage, mode: str) -> None:
    assert stage.drive("agents_sdk.py", mode) == {"text": f"Bye. walk.{mode}#4"}
    assert stage.check({"chat": "chat completions"}.get(mode, f"two rounds of tools, {mode}")).n_turns == 4


def test_an_agent_as_a_tool(stage: Stage) -> None:
    assert stage.drive("agents_sdk.py", "team") == {"text": "Bye. guide#3"}
    assert stage.check("an agent as another's tool").n_turns == 5
