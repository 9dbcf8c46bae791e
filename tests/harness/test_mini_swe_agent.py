"""mini-swe-agent: bash in a loop, through litellm: as a tool, written as text, over Responses."""

from burnish.testing import FULL, Outcome, Refusal, Scene, Script, Scripted, Step
from tests.harness.stage import Stage

HARNESS = "mini-swe-agent"


def bash(*commands: str) -> Scripted:
    return Scripted("On it.", [("bash", f'{{"command": "{command}"}}') for command in commands])


STEPS = [
    Step([bash("echo @mark > one.txt", "echo @mark > two.txt")]),
    Step([bash("cat one.txt two.txt > both.txt; : @mark")]),
    Step([bash("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo done @mark")]),
]


def text(command: str) -> Step:
    return Step([Scripted(f"THOUGHT: @mark\n\n```mswea_bash_command\n{command}\n```")])


TEXT = [
    text("echo @mark > one.txt"),
    text("cat one.txt one.txt > both.txt"),
    text("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
]
SCRIPT = Script(
    [Scene("work", STEPS), Scene("text", TEXT), Scene("hard", [Step(STEPS[0].replies, [FULL, Refusal()]), *STEPS[1:]])]
)


def mini(stage: Stage, scene: str, *options: str) -> None:
    program, task = str(stage.environment.program("mini")), f"scene:{scene} please"
    command = [program, "-m", "openai/agent", "-y", "--exit-immediately", "-t", task, *options]
    environ = {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1"}
    played = stage.play(command, **environ)
    assert played.code == 0, played.out + played.err
    assert (stage.work / "both.txt").read_text().split() == [f"{scene}#1", f"{scene}#1"]


def test_work(stage: Stage) -> None:
    mini(stage, "work")
    assert stage.check("a task in three steps, two commands at once").n_turns == 3


def test_retries(stage: Stage) -> None:
    mini(stage, "hard")
    assert sum(truth.outcome is Outcome.REFUSED for truth in stage.truths) >= 2
    assert stage.check("an engine that is full and fails").n_turns == 3


def test_commands_as_text(stage: Stage) -> None:
    mini(stage, "text", "-c", "mini_textbased.yaml", "--model-class", "litellm_textbased")
    assert stage.check("commands written as text").n_turns == 3


def test_responses(stage: Stage) -> None:
    mini(stage, "work", "--model-class", "litellm_response")
    assert stage.check("Responses").n_turns == 3
