"""Codex CLI: `codex exec` on Responses, its shell tool, retries, compaction."""

import json

from burnish.testing import FULL, Scene, Script, Scripted, Side, Step
from tests.harness.stage import Played, Stage

HARNESS = "codex"


def run(*commands: str, said: str = "", **more: int) -> Scripted:
    return Scripted(said, [("exec_command", json.dumps({"cmd": command})) for command in commands], **more)


STEPS = [
    Step([run("echo @mark > one.txt", "echo @mark > two.txt")]),
    Step([run("cat one.txt two.txt > both.txt; : @mark", said="Both now.")]),
    Step([Scripted("All done: @mark")]),
]
SCRIPT = Script(
    [
        Scene("work", [*STEPS, Step([Scripted("Bye: @mark")])]),
        Scene("hard", [Step(STEPS[0].replies, [FULL, FULL]), *STEPS[1:]]),
        Scene("long", [STEPS[0], Step([run("cat one.txt > both.txt; : @mark", n_prompt=250_000)]), *STEPS[1:]]),
    ],
    [Side("summary", "CONTEXT CHECKPOINT COMPACTION", Scripted("So far: scene:@run, @mark is done."))],
)
CONFIG = """
model = "agent"
model_provider = "burnish"
model_context_window = 272000
model_auto_compact_token_limit = 200000
check_for_update_on_startup = false

[model_providers.burnish]
name = "Burnish"
base_url = "{url}/v1"
env_key = "GATEWAY_KEY"
wire_api = "responses"
request_max_retries = 4
stream_max_retries = 4
"""


def codex(stage: Stage, said: str, *command_words: str) -> Played:
    folder = stage.home / ".codex"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(CONFIG.format(url=stage.url), encoding="utf-8")
    command = [str(stage.environment.program("codex")), "exec", "--skip-git-repo-check", "--json"]
    command += ["--dangerously-bypass-approvals-and-sandbox", *command_words, said]
    played = stage.play(command, seconds=90, CODEX_HOME=str(folder))
    assert played.code == 0, played.out + played.err
    return played


def test_work(stage: Stage) -> None:
    assert "All done: work#3" in codex(stage, "scene:work please").out
    assert (stage.work / "both.txt").read_text().split() == ["work#1", "work#1"]
    assert "Bye: work#4" in codex(stage, "bye", "resume", "--last").out
    assert stage.check("a task in three steps, two commands at once; resumed by another process").n_turns == 4


def test_retries(stage: Stage) -> None:
    assert "All done: hard#3" in codex(stage, "scene:hard please").out
    assert stage.check("an engine that is full").n_turns == 3


def test_compaction(stage: Stage) -> None:
    assert "All done: long#4" in codex(stage, "scene:long please").out
    verdict = stage.check("compaction of a long history")
    assert any(truth.side == "summary" for truth in stage.truths)
    assert verdict.n_turns == 5


def test_a_rating(stage: Stage) -> None:
    assert "All done: work#3" in codex(stage, "scene:work please").out
    assert "[burnish] Noted" in codex(stage, "/bad too long", "resume", "--last").out
    assert "Bye: work#4" in codex(stage, "bye", "resume", "--last").out
    assert stage.ratings() == [("All done: work#3", -1.0, "too long")]
    stage.check("a rating that the user says")
