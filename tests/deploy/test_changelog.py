"""CHANGELOG.md has the form of Keep a Changelog, and its newest release is the version of the project."""

import re
import tomllib
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
LINES = (HOME / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_releases_are_dated_and_the_newest_is_this_version() -> None:
    heads = [line for line in LINES if line.startswith("## ")]
    releases = [re.fullmatch(r"## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}", head) for head in heads[1:]]

    assert heads[0] == "## [Unreleased]"
    assert releases[0] is not None and all(releases)
    assert releases[0][1] == tomllib.loads((HOME / "pyproject.toml").read_text())["project"]["version"]


def test_a_release_has_known_sections_with_points() -> None:
    text = "\n".join(LINES)
    sections = re.findall(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)

    assert {name for name, _ in sections} <= KINDS
    assert sections and all(re.search(r"^- ", body, re.MULTILINE) for _, body in sections)
    assert [line for line in LINES if len(line) > 120] == []
