"""CI and pre-commit run the Makefile's commands; actions are pinned, permissions minimal."""

import re
from pathlib import Path
from typing import Any

import yaml

HOME = Path(__file__).resolve().parents[2]
MAKEFILE = (HOME / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def read(path: str) -> dict[Any, Any]:
    tree: dict[Any, Any] = yaml.safe_load((HOME / path).read_text(encoding="utf-8"))
    return tree


WORKFLOW = read(".github/workflows/ci.yml")
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
TRIGGERS = WORKFLOW[True]  # YAML 1.1 reads the key `on` as true


def calls(job: dict[str, Any]) -> set[str]:
    """Make targets that a job calls, over all values of its matrix."""
    found: set[str] = set()
    for step in job["steps"]:
        for target in re.findall(r"\bmake (\$\{\{ matrix\.\w+ \}\}|[a-z-]+)", step.get("run", "")):
            name = re.fullmatch(r"\$\{\{ matrix\.(\w+) \}\}", target)
            found |= set(job["strategy"]["matrix"][name[1]]) if name else {target}
    return found


def recipe(target: str) -> list[str]:
    """The commands of a make target, with the environment's path inserted."""
    body = MAKEFILE.partition(f"\n{target}:")[2].partition("\n\n")[0]
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in body.splitlines()[1:]]


def test_each_job_calls_targets_that_exist() -> None:
    assert {name: calls(job) for name, job in JOBS.items()} == {
        "check": {"check"},
        "test": {"test"},
        "weekly": {"test-harness", "test-browser", "audit"},
    }
    assert set().union(*map(calls, JOBS.values())) <= TARGETS


def test_each_push_is_checked_with_the_oldest_and_the_newest_python() -> None:
    assert {"push", "pull_request", "schedule"} <= set(TRIGGERS)
    assert JOBS["check"]["strategy"]["matrix"]["python"] == ["3.11", "3.13"]
    assert "refs/heads/main" in JOBS["test"]["if"] and "schedule" in JOBS["weekly"]["if"]


def test_actions_are_pinned_by_their_full_version() -> None:
    used = [step["uses"] for job in JOBS.values() for step in job["steps"] if "uses" in step]

    assert used
    assert [each for each in used if not re.fullmatch(r"actions/[a-z-]+@v\d+\.\d+\.\d+", each)] == []


def test_a_job_may_only_read_and_ends_at_some_time() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert all("permissions" not in job and job["timeout-minutes"] > 0 for job in JOBS.values())
    assert WORKFLOW["concurrency"]["group"]


def test_pre_commit_runs_what_make_lint_runs_but_for_the_site() -> None:
    (repository,) = read(".pre-commit-config.yaml")["repos"]
    hooks = repository["hooks"]

    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in hooks] == [command for command in recipe("lint") if "mkdocs" not in command]
    assert all(hook["language"] == "system" and hook["pass_filenames"] is False for hook in hooks)
