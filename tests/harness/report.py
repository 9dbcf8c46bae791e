"""The table of harness results: JSON for `python -m benchmarks.harness`, and Markdown."""

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import markdown
from tests.harness.environment import version_of
from tests.harness.stage import Stage


@dataclass
class Row:
    """One harness."""

    harness: str
    version: str = ""
    routes: list[str] = field(default_factory=list)
    driven: list[str] = field(default_factory=list)
    n_turns: int = 0
    n_eligible: int = 0
    n_trainable: int = 0
    n_unwanted: int = 0
    n_sessions: int = 0
    n_sessions_right: int = 0
    n_passed: int = 0
    failures: list[str] = field(default_factory=list)


class Table:
    """The rows as tests end."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}

    def add(self, name: str, stage: Stage | None, outcome: pytest.TestReport) -> None:
        """One test of a harness: what it drove and how it went."""
        row = self._rows.setdefault(name, Row(name, version_of(name)))
        for verdict in stage.verdicts if stage else ():
            row.n_turns += verdict.n_turns
            row.n_eligible += verdict.n_eligible
            row.n_trainable += verdict.n_trainable
            row.n_unwanted += verdict.n_unwanted
            row.n_sessions += verdict.n_sessions
            row.n_sessions_right += verdict.n_sessions_right
            row.routes = sorted({*row.routes, *verdict.routes})
        row.driven += stage.driven if stage else []
        if outcome.passed:
            row.n_passed += 1
        elif outcome.failed or hasattr(outcome, "wasxfail"):
            known = _known(outcome)
            said = known or f"{outcome.nodeid.rpartition('::')[2]}: {_first_line(outcome)}"
            row.failures += [] if said in row.failures else [said]

    def rows(self) -> list[dict[str, Any]]:
        return [asdict(row) for _, row in sorted(self._rows.items())]

    def write(self, path: Path) -> None:
        """Write the table. Does nothing if no harness ran."""
        if self._rows:
            path.parent.mkdir(parents=True, exist_ok=True)
            tree = {"at": time.strftime("%Y-%m-%d", time.gmtime()), "rows": self.rows()}
            path.write_text(json.dumps(tree, indent=1), encoding="utf-8")
            path.with_suffix(".md").write_text(markdown(self.rows()), encoding="utf-8")


def _known(outcome: pytest.TestReport) -> str:
    """The known fault behind a failure. Empty if the failure is new."""
    reason = getattr(outcome, "wasxfail", "").removeprefix("reason: ")
    return f"known: {reason.splitlines()[0]}" if reason else ""


def _first_line(outcome: pytest.TestReport) -> str:
    crash = getattr(outcome.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else outcome.longreprtext.strip()
    return str(text).splitlines()[0][:200] if text else "failed"
