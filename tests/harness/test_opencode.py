"""opencode: `opencode run` with its bundled OpenAI-compatible provider: tools, titles, a sub-agent, compaction."""

import json
from collections.abc import Sequence

from burnish.testing import FULL, TOO_LONG, Scene, Script, Scripted, Side, Step
from tests.harness.stage import Played, Stage

HARNESS = "opencode"


def bash(*commands: str, said: str = "", **more: int) -> Scripted:
    calls = [("bash", json.dumps({"command": command, "description": "Writes a file"})) for command in commands]
    return Scripted(said, calls, **more)


STEPS = [
    Step([bash("echo @mark > one.txt", "echo @mark > two.txt")]),
    Step([bash("cat one.txt two.txt > both.txt; : @mark", said="Both now.")]),
    Step([Scripted("All done: @mark")]),
]
TASK = {"description": "Read the sign", "prompt": "scene:reader @mark please", "subagent_type": "general"}
SCRIPT = Script(
    [
        Scene("work", [*STEPS, Step([Scripted("Bye: @mark")])]),
        Scene("hard", [Step(STEPS[0].replies, [FULL, FULL]), *STEPS[1:]]),
        Scene("full", [STEPS[0], Step([bash("cat one.txt two.txt > both.txt; : @mark")], [TOO_LONG]), STEPS[2]]),
        Scene("long", [STEPS[0], Step([bash("cat one.txt > both.txt; : @mark", n_prompt=199_000)]), *STEPS[1:]]),
        Scene("guide", [Step([Scripted("", [("task", json.dumps(TASK))])]), Step([Scripted("Guided: @mark")])]),
        Scene("reader", [Step([bash("echo @mark > sign.txt")]), Step([Scripted("It says: @mark")])], parent="guide"),
    ],
    [
        Side("title", "title generator", Scripted("Work")),
        Side("summary", "anchored context summarization|new anchored "
                        "summary", Scripted("So far: scene:@run, @mark is done.")),
    ],
)  # fmt: skip


def opencode(stage: Stage, *words: str, provider: str = "burnish", codes: Sequence[int] = (0,)) -> Played:
    burnish = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Burnish",
        "options": {"baseURL": f"{stage.url}/v1", "apiKey": stage.key},
        "models": {"agent": {"name": "agent", "limit": {"context": 200_000, "output": 8000}}},
    }
    config = {"provider": {provider: burnish}, "autoupdate": False, "share": "disabled", "permission": "allow"}
    (stage.work / "opencode.json").write_text(json.dumps(config), encoding="utf-8")
    command = [str(stage.environment.program("opencode")), "run", "--model", f"{provider}/agent", *words]
    played = stage.play(command, seconds=90, OPENCODE_DISABLE_AUTOUPDATE="1", OPENCODE_DISABLE_MODELS_FETCH="1")
    assert played.code in codes, played.out + played.err
    return played


def test_work(stage: Stage) -> None:
    assert "All done: work#3" in opencode(stage, "scene:work please").out
    assert (stage.work / "both.txt").read_text().split() == ["work#1", "work#1"]
    assert "Bye: work#4" in opencode(stage, "--continue", "bye").out
    stage.check("a task in three steps, two commands at once; continued by another process; titles")


def test_sessions_named_by_headers(stage: Stage) -> None:
    assert "All done: work#3" in opencode(stage, "scene:work please", provider="opencode-burnish").out
    stage.check("a provider that names its sessions")


def test_retries(stage: Stage) -> None:
    assert "All done: hard#3" in opencode(stage, "scene:hard please").out
    stage.check("an engine that is full")


def test_sub_agent(stage: Stage) -> None:
    assert "Guided: guide#2" in opencode(stage, "scene:guide please").out
    assert (stage.work / "sign.txt").read_text().split() == ["reader#1"]
    stage.check("a sub-agent")


def test_compaction(stage: Stage) -> None:
    assert "All done: long#4" in opencode(stage, "scene:long please").out
    assert any(truth.side == "summary" for truth in stage.truths)
    stage.check("compaction of a long history")


def test_a_prompt_that_is_too_long(stage: Stage) -> None:
    assert "All done: full#3" in opencode(stage, "scene:full please", codes=(0, 1)).out  # 1: it has told of an error
    stage.check("compaction when the engine refuses a long prompt")


def test_a_rating(stage: Stage) -> None:
    assert "All done: work#3" in opencode(stage, "scene:work please").out
    folder = stage.work / ".opencode" / "command"
    folder.mkdir(parents=True)
    (folder / "bad.md").write_text("/bad $ARGUMENTS\n", encoding="utf-8")
    assert "[burnish] Noted" in opencode(stage, "--continue", "--command", "bad", "too long").out
    assert "Bye: work#4" in opencode(stage, "--continue", "bye").out
    assert stage.ratings() == [("All done: work#3", -1.0, "too long")]
    stage.check("a rating that the user says")
