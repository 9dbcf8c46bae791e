"""docs/security.md: every claim names tests, and they exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
PAGE = (HOME / "docs" / "security.md").read_text(encoding="utf-8")
CLAIMS = re.findall(r"^\| ([^|]+) \| (`tests/[^|]+) \|$", PAGE, re.MULTILINE)
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((HOME / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(("path", "name"), TESTS)
def test_a_named_test_exists(path: str, name: str) -> None:
    assert (HOME / path).is_file() and name in functions(path) and name.startswith("test_")


def test_every_claim_names_a_test() -> None:
    tables = re.findall(r"^\| claim \| tests \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) == len(CLAIMS) > 25
    assert all(re.fullmatch(r"`tests/[\w/]+\.py::\w+`(, `tests/[\w/]+\.py::\w+`)*", tests) for _, tests in CLAIMS)
