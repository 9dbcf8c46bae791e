"""The house rules: short lines, small folders, one name for one meaning, a small repository."""

import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
MOST_CHARACTERS = 120
MOST_FILES = 15
LARGE_FOLDERS = {
    "docs/decisions": "a numbered page for each decision",
    "docs/results/style": "one summary for each arm of the benchmark",
    "src/burnish/journal/migrations/versions": "a numbered file for each change of the schema",
}
"""Folders with more than 15 files, each with its reason. At most three."""
ONE_MEANING = {
    "__init__.py": "a package",
    "__main__.py": "a package that runs",
    "agents.py": "agents: rows, routes, commands, pages",
    "audit.py": "the audit log: rows, route",
    "base_model.py": "the base model: its identity, its place",
    "canary.py": "canaries: verbs, routes, commands",
    "error_envelope.py": "an error as a dialect's clients read it",
    "feedback.py": "feedback: filing it, queries, routes, pages",
    "figures.py": "figures about an agent: queries, routes",
    "groups.py": "shadow groups: settings, rows",
    "heldout_replay.py": "the held-out replay: doing it, judging it",
    "jobs.py": "jobs: rows, leases",
    "keys.py": "API keys: what they are, routes, commands",
    "learner.py": "the learner: routes, commands, tables, pages",
    "parts.py": "the parts: what they are, the command that runs one",
    "privacy.py": "a user's data: verbs, routes, commands",
    "process.py": "a part's process: its entry point",
    "releases.py": "promotion and rollback: verbs, routes",
    "renderer.py": "a dialect's answers",
    "request.py": "a dialect's request body",
    "steps.py": "the learner's steps: rows, queries",
    "tools.py": "a dialect's tools",
    "turns.py": "turns: rows, queries, routes, commands, tables, pages",
    "users.py": "the simulated users of a world",
    "versions.py": "versions: rows, queries, routes, commands, tables, pages",
}
"""File names that occur more than once in the product, each with its one meaning."""
PRODUCT = ("adapters/", "judges/", "learner/", "sandbox/", "server/", "src/")


def tracked(*patterns: str) -> list[str]:
    """The files in git, without links."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", *patterns], cwd=HOME, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [name for name in names if (HOME / name).is_file() and not (HOME / name).is_symlink()]


def long_lines(text: str) -> list[str]:
    """Lines of Markdown prose that are too long. Tables, code blocks, comments and lines of one link do not count."""
    found: list[str] = []
    is_code = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
        is_prose = not is_code and not line.lstrip().startswith(("|", "<", "![", "    "))
        if (
            is_prose
            and len(line) > MOST_CHARACTERS
            and " " in re.sub(r"\[[^\]]*\]\([^)]*\)|^[-*\d. ]+", "", line).strip()
        ):
            found.append(line)
    return found


PAGES = [name for name in tracked("*.md") if not name.startswith("judges/prompts/")]
"""A judge's prompt is exempt: its words are data, and models were trained on them."""


@pytest.mark.parametrize("page", PAGES)
def test_a_line_of_prose_has_at_most_120_characters(page: str) -> None:
    assert long_lines((HOME / page).read_text(encoding="utf-8")) == []


def test_a_long_line_of_prose_is_found() -> None:
    words = "word " * 30
    assert long_lines(words) == [words]
    assert long_lines(f"| {words} |\n```\n{words}\n```\n") == []


def test_a_folder_has_at_most_15_files_side_by_side() -> None:
    folders: dict[str, int] = defaultdict(int)
    for name in tracked():
        if not name.startswith("tests/"):
            folders[str(Path(name).parent)] += 1
    assert {folder for folder, n in folders.items() if n > MOST_FILES} - {"."} == set(LARGE_FOLDERS)
    assert len(LARGE_FOLDERS) <= 3


def test_a_file_name_stands_for_one_meaning() -> None:
    names: dict[str, int] = defaultdict(int)
    for name in tracked("*.py"):
        if name.startswith(PRODUCT) and "migrations" not in name:
            names[Path(name).name] += 1
    assert {name for name, n in names.items() if n > 1} == set(ONE_MEANING)


def test_the_repository_is_small() -> None:
    """19 MB at most. The sandbox's two models are 9 of them, the pictures of the pages 1.3."""
    assert sum((HOME / name).stat().st_size for name in tracked()) <= 19 * 2**20
