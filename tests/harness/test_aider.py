"""aider: edits as text, repeated after failed edits or tests, and commit messages as side calls."""

import subprocess

from burnish.testing import Scene, Script, Scripted, Side, Step
from tests.harness.stage import Stage

HARNESS = "aider"


def edit(old: str, new: str) -> Scripted:
    return Scripted(
        f"Here is @mark.\n\nhello.py\n```python\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```\n"
    )


SCRIPT = Script(
    [
        Scene(
            "edit",
            [
                Step([edit('print("not there")', 'print("@mark")')]),
                Step([edit('print("hello")', 'print("wrong @mark")')]),
                Step([edit('print("wrong edit#2")', 'print("right @mark")')]),
            ],
        )
    ],
    [Side("commit message", "one-line Git commit message", Scripted("feat: say what is right"))],
)


def git(stage: Stage, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    return subprocess.run(["git", *who, *words], cwd=stage.work, check=True, capture_output=True, text=True).stdout


def test_edits(stage: Stage) -> None:
    (stage.work / "hello.py").write_text('print("hello")\n')
    git(stage, "init", "-q")
    git(stage, "add", "hello.py")
    git(stage, "commit", "-qm", "start")
    options = (
        "--yes-always --no-check-update --no-show-model-warnings --analytics-disable "
        "--no-show-release-notes --no-pretty"
    )
    command = [
        str(stage.environment.program("aider")), "--model", "openai/agent", "--weak-model", "openai/agent",
        "--edit-format", "diff", *options.split(), "--no-gitignore", "--no-detect-urls", "--disable-playwright",
        "--map-tokens", "0", "--auto-test", "--test-cmd", "grep right "
                                                          "hello.py", "--message", "scene:edit please", "hello.py",
    ]  # fmt: skip
    played = stage.play(command, OPENAI_API_BASE=f"{stage.url}/v1", GIT_AUTHOR_NAME="t", GIT_COMMITTER_NAME="t")
    assert played.code == 0, played.out + played.err
    assert (stage.work / "hello.py").read_text() == 'print("right edit#3")\n', played.out
    assert "feat: say what is right" in git(stage, "log", "--format=%s")
    stage.check("edits in text, an edit that does not apply, a failing test, commit messages")
