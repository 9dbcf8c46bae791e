"""The table of agent harnesses: `make test-harness` measures it, `python -m benchmarks.harness` writes it to its page.

`--check` changes nothing and exits with 1 if the page has other figures.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[1]
REPORT = HOME / ".work" / "harness" / "report.json"
BEGIN, END = "<!-- harnesses: begin -->", "<!-- harnesses: end -->"
HEAD = ("harness", "routes", "driven", "turns", "trainable", "sessions right", "result")


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table as Markdown. `rows` are those of the report."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    for row in rows:
        share = f"{row['n_trainable'] / row['n_eligible']:.0%}" if row["n_eligible"] else "–"
        cells = [
            row["version"],
            ", ".join(f"`{route}`" for route in row["routes"]),
            "; ".join(dict.fromkeys(row["driven"])),
            str(row["n_turns"]),
            f"{share} of {row['n_eligible']}"
            + (f", and {row['n_unwanted']} that should not" if row["n_unwanted"] else ""),
            f"{row['n_sessions_right']} of {row['n_sessions']}",
            "; ".join(row["failures"]) or "passed",
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def replaced(text: str, table: str) -> str:
    """`text` with `table` between the two markers."""
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(
            f"expected the markers {BEGIN} and {END} in the page, got none; add them where the table belongs"
        )
    return f"{before}{BEGIN}\n{table}{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harness", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--report", type=Path, default=REPORT, help="report of `make test-harness`")
    parser.add_argument("--page", type=Path, default=HOME / "docs" / "explanation" / "harness-tests.md")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if not given.report.exists():
        raise SystemExit(f"no report at {given.report}; run `make test-harness` first")
    report = json.loads(given.report.read_text(encoding="utf-8"))
    old = given.page.read_text(encoding="utf-8")
    new = replaced(old, markdown(report["rows"]) + f"\n(Measured {report['at']}.)\n")
    if given.check:
        sys.exit(int(old != new))
    given.page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
