"""`python -m benchmarks.security [--only PART …] [--json FILE]`: whether callers get what is theirs alone.

Without `--only`, a bar that was not measured counts as missed.
"""

import argparse
import json
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks import bars
from benchmarks.bars import Bar, Tell
from benchmarks.learning import __main__ as learning
from benchmarks.security import attacking, cost, forgetting, malformed, matrix, retraining, speed
from tests import postgres

PARTS = ("matrix", "forgetting", "attacks", "malformed", "cost", "retraining", "speed", "drill")
DRILL = ("--only", "drill", "--arms", "names-25,tools-25", "--seeds", "2-9")
"""The runs of `benchmarks.learning` with attackers (an hour, unless their summaries are in `docs/results`)."""
BARS: tuple[Bar, ...] = (
    ("cells of the matrix that nobody has decided", "matrix_open", "0", lambda f: f["matrix_open"] == 0),
    ("cells of the matrix that answer otherwise", "matrix_wrong", "0", lambda f: f["matrix_wrong"] == 0),
    (
        "strings of a forgotten user that were planted",
        "forgotten_planted",
        "≥ 1,000",
        lambda f: f["forgotten_planted"] >= 1000,
    ),
    ("bytes of them that are left", "forgotten_found", "0", lambda f: f["forgotten_found"] == 0),
    ("share of another user's strings that are left", "forgotten_kept", "1", lambda f: f["forgotten_kept"] == 1),
    ("share of the versions that are listed right", "lineage_right", "1", lambda f: f["lineage_right"] == 1),
    *(
        (f"{text}, on PostgreSQL", f"{name}_postgresql", str(bar), lambda f, n=name, b=bar: f[f"{n}_postgresql"] == b)
        for text, name, bar in (
            ("bytes of a forgotten user's strings that are left", "forgotten_found", 0),
            ("share of another user's strings that are left", "forgotten_kept", 1),
            ("share of the versions that are listed right", "lineage_right", 1),
        )
    ),
    ("attacks", "attacks", "≥ 60", lambda f: f["attacks"] >= 60),
    ("of which succeed", "attacks_succeeded", "0", lambda f: f["attacks_succeeded"] == 0),
    ("on the code before", "attacks_succeeded_before", "≥ 20", lambda f: f["attacks_succeeded_before"] >= 20),
    (
        "planted secrets in logs, tracebacks, answers, exports, process lists, images",
        "secrets_found",
        "0",
        lambda f: f["secrets_found"] == 0,
    ),
    ("malformed requests", "malformed", "≥ 20,000", lambda f: f["malformed"] >= 20_000),
    ("of which answered 5xx", "malformed_5xx", "0", lambda f: f["malformed_5xx"] == 0),
    ("of which hung", "malformed_hung", "0", lambda f: f["malformed_hung"] == 0),
    ("memory gained by them, MiB", "malformed_memory_mib", "≤ 64", lambda f: f["malformed_memory_mib"] <= 64),
    ("worst CPU time of a request or record, ms", "worst_ms", "≤ 50", lambda f: f["worst_ms"] <= 50),
    (
        "score of a retrained version, from that of a run without the user",
        "retrain_gap",
        "≤ 0.05",
        lambda f: f["retrain_gap"] <= 0.05,
    ),
    (
        "gateway's added latency, p50, of the code before",
        "added_p50_of_before",
        "≤ 1.05",
        lambda f: f["added_p50_of_before"] <= 1.05,
    ),
    (
        "fall of the served score, many names of one key",
        "served_drop_names",
        "≤ 0.05",
        lambda f: f["served_drop_names"] <= 0.05,
    ),
    (
        "the same, poisoned tool output",
        "served_drop_tools",
        "≤ 0.05",
        lambda f: f["served_drop_tools"] <= 0.05,
    ),
    ("gateway's requests/s, of the code before", "rps_of_before", "≥ 0.95", lambda f: f["rps_of_before"] >= 0.95),
)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.security", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="measure only this part; repeatable")
    parser.add_argument(
        "--before", type=Path, metavar="DIR", help="attack and measure this older checkout's packages as well"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    console = bars.make_console()
    with bars.workplace(console, "security") as (folder, tell):
        figures = _measure(given, folder, tell)
    bars.show(console, "security", BARS, figures)
    bars.show_rest(console, BARS, figures)
    missing = [key for _, key, _, _ in BARS if key not in figures] if not given.only else []
    if missing:
        console.print(f"not measured: {', '.join(missing)}; `--before DIR` names an older checkout's packages")
    sys.exit(bars.finish(console, BARS, figures, given.json) or bool(missing))


def _measure(given: argparse.Namespace, folder: Path, tell: Tell) -> dict[str, float]:
    figures: dict[str, float] = {}
    parts = given.only or PARTS
    if "matrix" in parts:
        tell("the authorisation matrix")
        figures |= matrix.measure(folder / "matrix", tell)
    if "forgetting" in parts:
        tell("what is left of a forgotten user")
        figures |= forgetting.measure(folder / "forgetting", tell)
        tell("the same on PostgreSQL")
        figures |= _on_postgresql(folder / "forgetting_postgresql", tell)
    if "attacks" in parts:
        figures |= attacking.measure(folder / "attacks", tell, given.before)
    if "malformed" in parts:
        tell("malformed requests")
        figures |= malformed.measure(folder / "malformed", tell)
    if "cost" in parts:
        tell("the cost of requests and records")
        figures |= cost.measure(folder / "cost", tell)
    if "retraining" in parts:
        tell("retraining without a user, with vLLM and the sandbox's model")
        figures |= retraining.measure(folder / "retraining", tell)
    if "speed" in parts:
        tell("the gateway's speed")
        figures |= speed.measure(folder / "speed", tell, given.before)
    if "drill" in parts:
        tell("the safety drill with attackers")
        figures |= _drill(folder)
    return figures


def _drill(folder: Path) -> dict[str, float]:
    """The drill's figures. Its own table is printed too."""
    file = folder / "drill.json"
    with suppress(SystemExit):  # its status says whether its bars are met
        learning.main([*DRILL, "--json", str(file)])
    found: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
    return {key: found[key] for key in ("served_drop_names", "served_drop_tools") if key in found}


def _on_postgresql(folder: Path, tell: Tell) -> dict[str, float]:
    """The figures of the same on PostgreSQL. None of them if it cannot be had, with a word."""
    try:
        with postgres.serve() as server:
            found = forgetting.measure(folder, tell, 1000, server.url(server.empty()), server.folder / "data")
    except pytest.fail.Exception as error:
        tell(f"skipped: {error}")
        return {}
    return {f"{name}_postgresql": value for name, value in found.items()}


if __name__ == "__main__":
    main()
