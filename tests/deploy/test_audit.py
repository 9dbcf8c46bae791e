"""The audit of what the locks install: vulnerabilities fail it, an unreachable database is said and does not."""

import json
import re
from typing import Any

import pytest

from deploy import audit


def told(*dependencies: dict[str, Any]) -> str:
    return json.dumps({"dependencies": dependencies, "fixes": []})


FINE = {"name": "uv", "version": "0.9", "vulns": []}
LOST = {"name": "numpy", "skip_reason": "Dependency not found on PyPI and could not be audited"}
BAD = {"name": "torch", "version": "1.0", "vulns": [{"id": "PYSEC-2022-1"}, {"id": "CVE-1"}]}


@pytest.mark.parametrize(
    ("output", "words", "is_bad"),
    [
        (told(FINE), "1 packages without a known vulnerability", False),
        (told(FINE, LOST), "1 packages without a known vulnerability, 1 not audited: numpy", False),
        (told(FINE, LOST, BAD), "vulnerable: torch 1.0: PYSEC-2022-1, CVE-1", True),
        (told(LOST), "not audited, because the database of vulnerabilities cannot be reached", False),
        ("", "not audited, because the database of vulnerabilities cannot be reached", False),
        ("ConnectionError", "not audited, because the database of vulnerabilities cannot be reached", False),
    ],
)
def test_what_is_said_of_an_audit(output: str, words: str, is_bad: bool) -> None:
    assert audit.verdict(output) == (words, is_bad)


def test_the_tools_have_one_version_each() -> None:
    assert all(re.fullmatch(r"[a-z-]+==\d+(\.\d+)+", tool) for tool in (audit.PIP_AUDIT, audit.CYCLONEDX))
