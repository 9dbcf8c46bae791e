"""`python -m benchmarks.ingest [--only PART …] [--json FILE]`: how fast records become the journal, and its size.

Conversations of 8 turns begin with 4 KB of history. The ingester has one core. Beside it stand the limits of the same
run: bare `executemany` calls with the same rows, and the gateway's own rate. `big` does the same work on a long and on
a short journal.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import bars
from benchmarks.bars import Bar, Figures, Tell
from benchmarks.ingest import big, gateway, idle, limits, ours, traffic
from benchmarks.ingest.traffic import Shape
from burnish.config import Journal as JournalSettings
from burnish.config import Settings
from tests import postgres

PARTS = ("sqlite", "postgresql", "gateway", "size", "idle", "idle_postgresql", "big")
LARGE = Shape(asked=2048 - 800, n_tokens=200)
"""2 KB of new text a turn, 200 tokens of which are the reply's."""
LONG = Shape(n_turns=60, history=16_384, asked=2000, n_tokens=100)
"""An agent's conversation, which ends with a prompt of 40,000 tokens."""


def _at_most(key: str, bar: float) -> Callable[[Figures], bool]:
    return lambda figures: figures[key] <= bar


BARS: tuple[Bar, ...] = (
    ("turns/s on one core, SQLite", "ingest_turns_per_s", "≥ 3,000", lambda f: f["ingest_turns_per_s"] >= 3000),
    (
        "turns/s on one core, PostgreSQL on the other",
        "ingest_turns_per_s_pg",
        "≥ 3,000",
        lambda f: f["ingest_turns_per_s_pg"] >= 3000,
    ),
    ("share of the gateway's own rate", "ingest_of_gateway", "≥ 0.6", lambda f: f["ingest_of_gateway"] >= 0.6),
    ("bytes on disk, share of the raw records'", "bytes_of_raw", "≤ 0.6", lambda f: f["bytes_of_raw"] <= 0.6),
    ("all parts while idle, share of a core", "idle_share", "≤ 0.02", lambda f: f["idle_share"] <= 0.02),
    ("the same on PostgreSQL", "idle_share_pg", "≤ 0.02", lambda f: f["idle_share_pg"] <= 0.02),
    *(
        (f"{what}, long journal ÷ short", f"big_{name}", "≤ 1.2", _at_most(f"big_{name}", 1.2))
        for name, what in (
            ("capture", "p99 of capture"),
            ("linking", "linking"),
            ("lease", "a lease"),
            ("ready", "the learner's ready turns"),
            ("admin", "p95 of admin requests"),
        )
    ),
    ("p95 of admin requests on the long journal, ms", "big_admin_p95_ms", "≤ 50", _at_most("big_admin_p95_ms", 50)),
)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="measure only this part; repeatable")
    parser.add_argument("--conversations", type=int, default=2000, help="conversations of 8 turns in each part")
    parser.add_argument("--seconds", type=float, default=300.0, help="length of the idle time")
    parser.add_argument("--turns", type=int, default=10_000_000, help="turns of the long journal; 4 GB a million")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    console = bars.make_console()
    figures: dict[str, float] = {}
    with bars.workplace(console, "ingest") as (folder, tell):
        for part in given.only or PARTS:
            tell(part)
            figures |= _MEASURES[part](folder / part, given, tell)
    bars.show(console, "ingestion", BARS, figures)
    bars.show_rest(console, BARS, figures)
    sys.exit(bars.finish(console, BARS, figures, given.json))


def _sqlite(folder: Path, given: argparse.Namespace, tell: Tell) -> dict[str, float]:
    settings = Settings(state_dir=folder)
    written = traffic.write(settings.segments_dir, Shape(), given.conversations)
    tell("sqlite: filing")
    filed = ours.measure(settings, written.n_turns)
    tell("sqlite: the limit")
    bare = limits.bare_sqlite(folder / "journal.db", folder / "bare")
    return {
        "ingest_turns_per_s": filed.turns_per_s,
        "ingest_us_per_turn": filed.us_per_turn,
        "bare_turns_per_s": bare,
        "ingest_of_bare": filed.turns_per_s / bare,
    }


def _postgresql(folder: Path, given: argparse.Namespace, tell: Tell) -> dict[str, float]:
    with postgres.serve(is_durable=True, core=1) as server:
        settings = Settings(state_dir=folder, journal=JournalSettings(url=server.url(server.empty())))
        written = traffic.write(settings.segments_dir, Shape(), given.conversations)
        tell("postgresql: filing")
        filed = ours.measure(settings, written.n_turns)
    return {"ingest_turns_per_s_pg": filed.turns_per_s, "ingest_us_per_turn_pg": filed.us_per_turn}


def _gateway(folder: Path, given: argparse.Namespace, tell: Tell) -> dict[str, float]:
    found = gateway.measure(folder, given.conversations)
    return {
        "gateway_turns_per_s": found.gateway,
        "ingest_after_gateway": found.ingester,
        "ingest_of_gateway": found.ingester / found.gateway,
    }


def _size(folder: Path, given: argparse.Namespace, tell: Tell) -> dict[str, float]:
    """What a turn takes on the disk once it is filed. Its segment is then removed after a grace time."""
    found: dict[str, float] = {}
    for name, shape, n in (("", LARGE, given.conversations // 10), ("long_", LONG, given.conversations // 100)):
        settings = Settings(state_dir=folder / f"{name}size")
        written = traffic.write(settings.segments_dir, shape, max(1, n))
        ours.measure(settings, written.n_turns)
        n_bytes = limits.bytes_of(settings.state_dir / "journal.db")
        found |= {
            f"{name}bytes_per_turn": n_bytes / written.n_turns,
            f"{name}raw_bytes_per_turn": written.raw_bytes / written.n_turns,
            f"{name}bytes_of_raw": n_bytes / written.raw_bytes,
        }
    return found


def _idle(folder: Path, given: argparse.Namespace, tell: Tell) -> dict[str, float]:
    return idle.measure(folder, given.seconds, tell)


def _idle_postgresql(folder: Path, given: argparse.Namespace, tell: Tell) -> dict[str, float]:
    """The server's own processes do not count."""
    with postgres.serve() as server:
        found = idle.measure(folder, given.seconds, tell, {"journal.url": server.url(server.empty())})
    return {f"{key}_pg": value for key, value in found.items()}


def _big(folder: Path, given: argparse.Namespace, tell: Tell) -> dict[str, float]:
    return big.measure(folder, given.turns, tell)


_MEASURES = {
    "big": _big,
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "gateway": _gateway,
    "size": _size,
    "idle": _idle,
    "idle_postgresql": _idle_postgresql,
}


if __name__ == "__main__":
    main()
