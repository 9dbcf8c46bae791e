"""The audit of what the locks install: vulnerabilities fail it, an unreachable database is said and does not."""

import json
import re
from pathlib import Path
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
        ("", "not audited: no answer", True),
    ],
)
def test_what_is_said_of_an_audit(output: str, words: str, is_bad: bool) -> None:
    assert audit.verdict(output) == (words, is_bad)


@pytest.mark.parametrize(
    ("errors", "words", "is_bad"),
    [
        (
            "Max retries exceeded\nConnectionError: Failed to resolve 'host'",
            "not audited, because the database of vulnerabilities cannot be reached",
            False,
        ),
        ("ERROR: invalid requirement in line 3", "not audited: ERROR: invalid requirement in line 3", True),
    ],
)
def test_a_tool_that_fails_is_no_database_out_of_reach(errors: str, words: str, is_bad: bool) -> None:
    assert audit.verdict("", errors) == (words, is_bad)


def test_an_sbom_that_was_not_written_is_a_fault(tmp_path: Path) -> None:
    sbom = tmp_path / "cpu.cdx.json"
    assert audit.written(sbom, "Traceback\nValueError: bad line") == ("no SBOM: ValueError: bad line", True)
    assert audit.written(sbom, "error: Failed to fetch the tool") == (
        "no SBOM, because its tool cannot be fetched",
        False,
    )
    sbom.write_text("{}")
    assert audit.written(sbom, "") == (f"SBOM in {sbom}", False)


def test_the_tools_have_one_version_each() -> None:
    assert all(re.fullmatch(r"[a-z-]+==\d+(\.\d+)+", tool) for tool in (audit.PIP_AUDIT, audit.CYCLONEDX))
