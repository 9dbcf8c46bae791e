"""Claude Code: `claude -p` on Messages, its shell tool, a sub-agent, retries, compaction."""

import json

from burnish.testing import FULL, TOO_LONG, Scene, Script, Scripted, Side, Step
from tests.harness.stage import Played, Stage

HARNESS = "claude-code"


def bash(*commands: str, said: str = "", **more: int) -> Scripted:
    calls = [("Bash", json.dumps({"command": command, "description": "Write a file"})) for command in commands]
    return Scripted(said, calls, **more)


STEPS = [
    Step([bash("echo @mark > one.txt", "echo @mark > two.txt")]),
    Step([bash("cat one.txt two.txt > both.txt; : @mark", said="Both now.")]),
    Step([Scripted("All done: @mark")]),
]
TASK = {"description": "Read the sign", "prompt": "scene:reader @mark please", "subagent_type": "general-purpose"}
SCRIPT = Script(
    [
        Scene("work", [*STEPS, Step([Scripted("Bye: @mark")])]),
        Scene("hard", [Step(STEPS[0].replies, [FULL, FULL]), *STEPS[1:]]),
        Scene("full", [STEPS[0], Step([bash("cat one.txt two.txt > both.txt; : @mark")], [TOO_LONG]), STEPS[2]]),
        Scene("long", [STEPS[0], Step([bash("cat one.txt > both.txt; : @mark", n_prompt=190_000)]), *STEPS[1:]]),
        Scene("guide", [Step([Scripted("", [("Agent", json.dumps(TASK))])]), Step([Scripted("Guided: @mark")])]),
        Scene("reader", [Step([bash("echo @mark > sign.txt")]), Step([Scripted("It says: @mark")])], parent="guide"),
    ],
    [
        Side("summary", "detailed summary of the "
                        "conversation", Scripted("<summary>So far: scene:@run, @mark is done.</summary>")),
        Side("title", "(?i)generate a (short|concise|succinct).*title", Scripted('{"title": "Work"}')),
    ],
)  # fmt: skip


def claude(stage: Stage, said: str, *options: str, **environ: str) -> Played:
    command = [str(stage.environment.program("claude")), "-p", said, "--output-format", "json", *options]
    command += ["--allowedTools", "Bash,Agent,Task", "--max-turns", "12", "--verbose"]
    played = stage.play(
        command,
        seconds=90,
        ANTHROPIC_BASE_URL=stage.url,
        ANTHROPIC_API_KEY=stage.key,
        ANTHROPIC_MODEL="agent",
        ANTHROPIC_SMALL_FAST_MODEL="agent",
        ANTHROPIC_DEFAULT_HAIKU_MODEL="agent",
        ANTHROPIC_DEFAULT_SONNET_MODEL="agent",
        ANTHROPIC_DEFAULT_OPUS_MODEL="agent",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
        CLAUDE_CONFIG_DIR=str(stage.home / ".claude"),
        IS_SANDBOX="1",
        **environ,
    )
    assert played.code == 0, played.out + played.err
    return played


def test_work(stage: Stage) -> None:
    assert "All done: work#3" in claude(stage, "scene:work please").out
    assert (stage.work / "both.txt").read_text().split() == ["work#1", "work#1"]
    assert "Bye: work#4" in claude(stage, "bye", "--continue").out
    stage.check("a task in three steps, two commands at once; continued by another process")


def test_retries(stage: Stage) -> None:
    assert "All done: hard#3" in claude(stage, "scene:hard please").out
    stage.check("an engine that is full")


def test_sub_agent(stage: Stage) -> None:
    assert "Guided: guide#2" in claude(stage, "scene:guide please").out
    assert (stage.work / "sign.txt").read_text().split() == ["reader#1"]
    stage.check("a sub-agent")


def test_compaction(stage: Stage) -> None:
    assert "All done: long#4" in claude(stage, "scene:long please", CLAUDE_CODE_AUTO_COMPACT_WINDOW="200000").out
    assert any(truth.side == "summary" for truth in stage.truths)
    stage.check("compaction of a long history")


def test_a_prompt_that_is_too_long(stage: Stage) -> None:
    assert "All done: full#3" in claude(stage, "scene:full please").out
    stage.check("compaction when the engine refuses a long prompt")


def test_a_rating(stage: Stage) -> None:
    assert "All done: work#3" in claude(stage, "scene:work please").out
    folder = stage.home / ".claude" / "commands"
    folder.mkdir(parents=True)
    (folder / "bad.md").write_text("/bad $ARGUMENTS\n", encoding="utf-8")
    assert "[burnish] Noted" in claude(stage, "/bad too long", "--continue").out
    assert "Bye: work#4" in claude(stage, "bye", "--continue").out
    assert stage.ratings() == [("All done: work#3", -1.0, "too long")]
    stage.check("a rating that the user says")
