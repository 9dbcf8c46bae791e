"""mini-swe-agent: bash in a loop, through litellm."""

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
SCRIPT = Script([Scene("work", STEPS), Scene("hard", [Step(STEPS[0].replies, [FULL, Refusal()]), *STEPS[1:]])])


def mini(stage: Stage, scene: str) -> None:
    command = [
        stage.environment.program("mini"),
        "-m",
        "openai/agent",
        "-y",
        "--exit-immediately",
        "-t",
        f"scene:{scene} please",
    ]
    environ = {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1"}
    played = stage.play(list(map(str, command)), **environ)
    assert played.code == 0, played.out + played.err
    assert (stage.work / "both.txt").read_text().split() == [f"{scene}#1", f"{scene}#1"]


def test_work(stage: Stage) -> None:
    mini(stage, "work")
    assert stage.check("a task in three steps, two commands at once").n_turns == 3


def test_retries(stage: Stage) -> None:
    mini(stage, "hard")
    assert sum(truth.outcome is Outcome.REFUSED for truth in stage.truths) >= 2
    assert stage.check("an engine that is full and fails").n_turns == 3
