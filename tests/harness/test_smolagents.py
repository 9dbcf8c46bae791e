"""smolagents: its ToolCallingAgent and its CodeAgent, which rewrite the model's replies in the history they send."""

import pytest

from burnish.testing import Scene, Script, Scripted, Step
from tests.harness.scenes import LOOK_TWICE
from tests.harness.stage import Stage

HARNESS = "smolagents"


def code(text: str) -> Scripted:
    """A thought and a piece of code; generation ends at the closing tag, which is a stop string."""
    return Scripted(f"Thought: @mark\n<code>\n{text}\n</code> never seen")


def answer(text: str) -> Scripted:
    return Scripted("", [("final_answer", f'{{"answer": "{text} @mark"}}')])


SCRIPT = Script(
    [
        Scene(
            "tools",
            [
                Step([LOOK_TWICE]),
                Step([Scripted("", [("look", '{"at": "@mark up"}')])]),
                Step([answer("I saw it:")]),
                Step([answer("Bye.")]),
            ],
        ),
        Scene(
            "code",
            [
                Step([code('print(look("@mark north"), look("@mark south"))')]),
                Step([code('seen = look("@mark up")')]),
                Step([code('final_answer("I saw it: @mark")')]),
                Step([code('final_answer("Bye. @mark")')]),
            ],
        ),
    ]
)


@pytest.mark.parametrize(("mode", "run"), [("tools", "whole"), ("tools-streamed", "streamed")])
def test_tools(stage: Stage, mode: str, run: str) -> None:
    said = stage.drive("smol_agent.py", mode)
    assert said == {"first": f"I saw it: tools.{run}#3", "second": f"Bye. tools.{run}#4"}
    assert stage.check(f"two rounds of tools, {run}").n_turns == 4


def test_code(stage: Stage) -> None:
    assert stage.drive("smol_agent.py", "code") == {"first": "I saw it: code#3", "second": "Bye. code#4"}
    assert stage.check("actions written as code, stop strings").n_turns == 4
