"""Signals in a tool's result: exit codes, HTTP statuses, time-outs, test verdicts.

Only the places where programs put them are read: the fields of a JSON object, and the first and last lines. A printed
file may hold any of these words and mean nothing by them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from burnish.records import Provenance, Signal, SignalKind

EDGE_LINES, LINE_CHARS = 3, 300
_INSIDE = ("metadata", "error", "result", "response")
_FIELDS = {
    SignalKind.EXIT_CODE: ("exit_code", "exitCode", "returncode", "return_code"),
    SignalKind.HTTP_STATUS: ("status", "status_code", "statusCode", "http_status", "code"),
}
_EXIT = re.compile(
    r"(?:<returncode>|\b(?:exit|return|exited with)[ _-]?(?:code|status)?(?: of)?[: ]+)(-?\d{1,3})\b", re.IGNORECASE
)
_STATUS = re.compile(r"\b(?:HTTP(?:/\d(?:\.\d)?|Error| error| status)?:?|status code:?)\s+([1-5]\d\d)\b", re.IGNORECASE)
_TIMEOUT = re.compile(
    r"\btimed out\b|\btimeout (?:after|exceeded|expired)\b|\bETIMEDOUT\b|\bdeadline exceeded\b", re.IGNORECASE
)
_COUNTS = (
    re.compile(r"^=+ .*\bin [\d.]+s"),  # pytest
    re.compile(r"^test result: (?:ok|FAILED)\. "),  # cargo
    re.compile(r"^Tests:\s+\d+ "),  # jest
    re.compile(r"^\s*\d+ (?:passed|failed)\b"),  # pytest -q and others
)
_COUNT = re.compile(r"(\d+) (passed|failed|errors?)\b")
_UNITTEST = re.compile(r"^(?:OK|FAILED)(?: \((?:failures|errors)=\d+.*\))?$")


def signals_of(text: str, provenance: Provenance) -> list[Signal]:
    """The signals in one tool result, at most one of each kind: the last one."""
    found: dict[SignalKind, Signal] = {}
    for kind, value, detail in (*_in_fields(text), *_in_lines(text)):
        if provenance is Provenance.WEB and kind is not SignalKind.TIMEOUT:
            continue  # a page may say anything
        found[kind] = Signal(kind, value, provenance, detail[:LINE_CHARS])
    return list(found.values())


def _in_fields(text: str) -> Iterator[tuple[SignalKind, float, str]]:
    if not text.lstrip().startswith("{"):
        return
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return
    for place in (tree, *(tree.get(name) for name in _INSIDE)):
        if isinstance(place, Mapping):
            for kind, names in _FIELDS.items():
                for name in names:
                    if (value := _number(kind, place.get(name))) is not None:
                        yield kind, value, f"{name}: {value:g}"


def _number(kind: SignalKind, value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    low, high = (-(2**31), 2**32) if kind is SignalKind.EXIT_CODE else (100, 599)
    return float(value) if low <= value <= high else None


def _in_lines(text: str) -> Iterator[tuple[SignalKind, float, str]]:
    lines = [line for line in text.splitlines() if line.strip()]
    edges = lines if len(lines) <= 2 * EDGE_LINES else lines[:EDGE_LINES] + lines[-EDGE_LINES:]
    for line in (line[:LINE_CHARS] for line in edges):
        if match := _EXIT.search(line):
            yield SignalKind.EXIT_CODE, float(match[1]), line
        if match := _STATUS.search(line):
            yield SignalKind.HTTP_STATUS, float(match[1]), line
        if _TIMEOUT.search(line):
            yield SignalKind.TIMEOUT, 1.0, line
        if (share := _passed(line)) is not None:
            yield SignalKind.TESTS, share, line


def _passed(line: str) -> float | None:
    """The share of passed tests in a test runner's closing line. None if it is no such line or no test ran."""
    if _UNITTEST.match(line):
        return 1.0 if line.startswith("OK") else 0.0
    if not any(pattern.match(line) for pattern in _COUNTS):
        return None
    counts = {"passed": 0, "failed": 0}
    for number, what in _COUNT.findall(line):
        counts["passed" if what == "passed" else "failed"] += int(number)
    n_run = sum(counts.values())
    return counts["passed"] / n_run if n_run else None
