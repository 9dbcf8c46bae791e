"""The `openai` Python client: chat completions in every way it has, and all that makes a linker err."""

from burnish.testing import Outcome, Scene, Script, Scripted, Step
from tests.harness.scenes import RETRIES, WALK
from tests.harness.stage import Stage

HARNESS = "openai"
SCRIPT = Script(
    [
        WALK,
        RETRIES,
        Scene("thinking", [Step([Scripted("So: @mark", reasoning="Hm, hm.")]), Step([Scripted("Bye. @mark")])]),
        Scene("choices", [Step([Scripted("take @mark")]), Step([Scripted("went on @mark")])]),
        Scene("schema", [Step([Scripted('{"seen": "@mark"}')])]),
        Scene("slow", [Step([Scripted("slow @mark", hang=30), Scripted("slow @mark")]),
                       Step([Scripted("went on @mark")])]),
        Scene("late", [Step([Scripted("late @mark", pause=30), Scripted("late @mark")]),
                       Step([Scripted("went on @mark")])]),
        Scene(
            "again",
            [Step([Scripted("one @mark"), Scripted("two @mark")]),
             Step([Scripted("this @mark"), Scripted("that @mark")])],
        ),
        Scene("collide", [Step([Scripted("hello @mark")]), Step([Scripted("good @mark")]),
                          Step([Scripted("@mark")])], collides=True),
    ]
)  # fmt: skip


def test_tools(stage: Stage) -> None:
    assert stage.drive("openai_chat.py", "whole")["rounds"] == [2, 1, 0, 0]
    assert stage.drive("openai_chat.py", "streamed")["text"] == "Bye. walk.s#4"
    verdict = stage.check("two rounds of tools, two of them parallel, whole and streamed")
    assert (verdict.n_turns, verdict.n_sessions, verdict.n_trainable) == (8, 2, 8)


def test_responses(stage: Stage) -> None:
    assert stage.drive("openai_chat.py", "responses") == {"text": "I saw it: walk.r#3", "rounds": [2, 1, 0]}
    assert stage.drive("openai_chat.py", "responses-streamed") == {"text": "I saw it: walk.rs#3", "rounds": [2, 1, 0]}
    assert stage.check("Responses").n_turns == 6


def test_many_at_once(stage: Stage) -> None:
    assert stage.drive("openai_chat.py", "many") == [f"Bye. walk.m{k}#4" for k in range(20)]
    assert stage.check("20 conversations at once").n_turns == 80


def test_retries(stage: Stage) -> None:
    assert stage.drive("openai_chat.py", "retries")["text"] == "Bye. retries#4"
    assert stage.drive("openai_chat.py", "retries-streamed")["text"] == "Bye. retries.s#4"
    assert sum(truth.outcome is Outcome.REFUSED for truth in stage.truths) == 8
    assert stage.check("an engine that is full, fails, and cuts the connection").n_turns == 8


def test_a_client_that_does_not_wait(stage: Stage) -> None:
    assert stage.drive("openai_chat.py", "late") == ["late late#1", "went on late#2"]
    broken, *said = stage.drive("openai_chat.py", "slow")
    assert "Timeout" in broken
    assert said == ["slow slow#1", "went on slow#2"]
    assert sum(truth.outcome is Outcome.LEFT for truth in stage.truths) == 2
    stage.check("time-outs before and in mid-answer")


def test_choices_and_schemas(stage: Stage) -> None:
    assert stage.drive("openai_chat.py", "choices") == {
        "texts": ["take choices#1", "take choices#1.1"],
        "text": "went on choices#2",
    }
    assert stage.drive("openai_chat.py", "schema") == {"seen": "schema#1"}
    assert stage.check("two choices, JSON schema").n_turns == 4


def test_asked_again(stage: Stage) -> None:
    found = stage.drive("openai_chat.py", "again")
    assert found == ["one again#1", "two again#1.1", "this again#2", "that again#2.1"]
    stage.check("regenerated replies, an edited question")


def test_reasoning(stage: Stage) -> None:
    assert stage.drive("openai_chat.py", "thinking")["text"] == "Bye. thinking#2"
    stage.check("reasoning that the client drops")


def test_conversations_that_begin_alike(stage: Stage) -> None:
    sessions = stage.drive("openai_chat.py", "collide")
    stage.check(
        "4 conversations with the same opening",
        {label: [name.removeprefix("chatcmpl-") for name in ids] for label, ids in sessions.items()},
    )
