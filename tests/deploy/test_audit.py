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


SENDING = "cause: error sending request for url (https://host/simple/pip-audit/)\n  cause: client error (Connect)"
UNREACHABLE = (
    f"{SENDING}\n  cause: tcp connect error\n  cause: Connection refused (os error 111)",
    f"{SENDING}\n  cause: dns error\n  cause: failed to lookup address information: Name or service not known",
    "error: No solution found\n\nhint: Packages were unavailable because the network was disabled.",
    "requests.exceptions.ConnectTimeout: HTTPSConnectionPool(host='h', port=443): Max retries exceeded with url: /",
    "requests.exceptions.ProxyError: Cannot connect to proxy.",
    "OSError: [Errno 101] Network is unreachable",
)
WRONG = (
    "error: No solution found when resolving tool dependencies\n  cause: there is no version of pip-audit==99.10.1",
    "ResolutionImpossible: Cannot resolve a==1 and a==2",
    "error: Failed to fetch: `https://host/simple/x/`\n  Caused by: HTTP status client error (404 Not Found)",
    "error: Failed to fetch: `https://host/simple/x/`\n  Caused by: HTTP status client error (403 Forbidden)",
    f"{SENDING}\n  cause: invalid peer certificate: UnknownIssuer",
    "requests.exceptions.SSLError: HTTPSConnectionPool(host='h', port=443): Max retries exceeded with url: /",
    "AttributeError: 'NoneType' object has no attribute 'connect'",
    "pip_audit: error: argument --retries: invalid int value",
    "TypeError: connect() got an unexpected keyword argument",
    "hash mismatch: expected sha256:1, fetched sha256:2",
)


@pytest.mark.parametrize(
    ("errors", "is_lost"), [*((each, True) for each in UNREACHABLE), *((each, False) for each in WRONG)]
)
def test_only_the_network_makes_it_unreachable(errors: str, is_lost: bool) -> None:
    assert audit.verdict("", errors)[1] is not is_lost


def test_an_sbom_that_was_not_written_is_a_fault(tmp_path: Path) -> None:
    sbom = tmp_path / "cpu.cdx.json"
    assert audit.written(sbom, "Traceback\nValueError: bad line") == ("no SBOM: ValueError: bad line", True)
    assert audit.written(sbom, "error: Failed to fetch the tool\n  cause: dns error") == (
        "no SBOM, because its tool cannot be fetched",
        False,
    )
    sbom.write_text("{}")
    assert audit.written(sbom, "") == (f"SBOM in {sbom}", False)


def test_the_tools_have_one_version_each() -> None:
    assert all(re.fullmatch(r"[a-z-]+==\d+(\.\d+)+", tool) for tool in (audit.PIP_AUDIT, audit.CYCLONEDX))
