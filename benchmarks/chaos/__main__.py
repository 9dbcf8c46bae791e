"""`python -m benchmarks.chaos [--only PART] [--seed N] [--faults N] [--json FILE]`: faults over a whole server.

`faults`: random kill -9 and SIGSTOP of every part of a real `burnish up`, with a stub in the engine's place, and a
ledger from outside. `learning`: the same with clients that rate, and the sandbox's model on a real engine. `machine`:
a disk that is full, fails or is slow, a clock that jumps, no handles and no memory (needs a C compiler). `database`: a
PostgreSQL that does not answer, breaks off every connection, or is killed. `power`: power failures at any moment of a
gateway and an ingester that flush what they record (needs strace). `restore`: a backup under load, restored elsewhere,
with the sandbox's model on a real engine. `soak`: hours of mixed load on a server that learns.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import bars
from benchmarks.bars import Bar, Figures
from benchmarks.chaos import database, faults, learning, machine, power, restore, soak

PARTS = ("faults", "learning", "machine", "database", "power", "restore")
SOAK = "soak"


def _none(key: str) -> Callable[[Figures], bool]:
    return lambda figures: figures[key] == 0


def _at_most(key: str, bar: float) -> Callable[[Figures], bool]:
    return lambda figures: figures[key] <= bar


BARS: tuple[Bar, ...] = (
    ("kills and stalls", "chaos_faults", "≥ 400", lambda f: f["chaos_faults"] >= 400),
    ("whole replies", "chaos_turns", "≥ 20,000", lambda f: f["chaos_turns"] >= 20_000),
    ("whole replies that are not in the journal", "lost", "0", _none("lost")),
    ("whole replies that are in it twice", "doubled", "0", _none("doubled")),
    ("requests that other parts' faults failed", "failed_by_others", "0", _none("failed_by_others")),
    ("adapters lost", "adapters_lost", "0", _none("adapters_lost")),
    ("gateway's recovery, p95, s", "recover_gateway", "≤ 2", _at_most("recover_gateway", 2)),
    ("judge's recovery, p95, s", "recover_judge", "≤ 10", _at_most("recover_judge", 10)),
    ("learner's recovery, p95, s", "recover_learner", "≤ 10", _at_most("recover_learner", 10)),
    ("engine's recovery beyond its boot, p95, s", "recover_engine", "≤ 5", _at_most("recover_engine", 5)),
    ("rows in two published steps", "trained_twice", "0", _none("trained_twice")),
    ("rated replies that no step took", "stranded", "0", _none("stranded")),
    ("whole replies lost while it learns", "learning_lost", "0", _none("learning_lost")),
    ("replies doubled", "learning_doubled", "0", _none("learning_doubled")),
    ("accepted ratings lost", "learning_ratings_lost", "0", _none("learning_ratings_lost")),
    ("requests that other parts' faults failed", "learning_failed_by_others", "0", _none("learning_failed_by_others")),
    ("adapters lost", "learning_adapters_lost", "0", _none("learning_adapters_lost")),
    ("faults of the database", "database_faults", "≥ 40", lambda f: f["database_faults"] >= 40),
    ("replies lost", "database_lost", "0", _none("database_lost")),
    ("replies doubled", "database_doubled", "0", _none("database_doubled")),
    ("requests that failed", "database_requests_failed", "0", _none("database_requests_failed")),
    ("until all parts work again, p95, s", "database_recover", "≤ 10", _at_most("database_recover", 10)),
    ("power failures", "power_failures", "≥ 1,000", lambda f: f["power_failures"] >= 1000),
    ("replies that a client saw and that they took", "power_lost", "0", _none("power_lost")),
    ("journals that they damaged", "power_damaged", "0", _none("power_damaged")),
    ("faults of the machine", "machine_faults", "≥ 40", lambda f: f["machine_faults"] >= 40),
    ("replies of before or after one that are lost", "machine_lost", "0", _none("machine_lost")),
    ("replies that are in the journal twice", "machine_doubled", "0", _none("machine_doubled")),
    ("requests that failed", "machine_requests_failed", "0", _none("machine_requests_failed")),
    ("adapters lost", "machine_adapters_lost", "0", _none("machine_adapters_lost")),
    ("journals damaged", "machine_damaged", "0", _none("machine_damaged")),
    ("until all parts work again, p95, s", "machine_recover", "≤ 10", _at_most("machine_recover", 10)),
    ("hours of mixed load", "soak_hours", "≥ 3", lambda f: f["soak_hours"] >= 3),
    ("requests that failed in them", "soak_failed", "0", _none("soak_failed")),
    *(
        (f"slope of {name}, % an hour", f"soak_{name}_slope", "≤ 1", _at_most(f"soak_{name}_slope", 1))
        for name in ("memory", "disk", "descriptors", "latency")
    ),
    ("backup restored elsewhere is the same", "restore_equal", "1", lambda f: f["restore_equal"] == 1),
)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--only",
        choices=(*PARTS, SOAK),
        action="append",
        help="only this part; repeatable (soak: only if named)",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the plan of faults")
    parser.add_argument("--faults", type=int, default=40, help="number of faults")
    parser.add_argument("--clients", type=int, default=4, help="clients that talk meanwhile")
    parser.add_argument("--turns", type=int, default=100_000, help="most turns of all clients")
    parser.add_argument("--hours", type=float, default=3.0, help="length of the soak; Ctrl-C ends it early")
    parser.add_argument("--folder", type=Path, help="keep all here; `faults` goes on where it was broken off")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    console = bars.make_console()
    figures: dict[str, float] = {}
    with bars.workplace(console, "chaos") as (temporary, tell):
        folder = given.folder or temporary
        if "faults" in (given.only or PARTS):
            tell(f"seed {given.seed}, {given.faults} faults")
            asked = (given.seed, given.faults, given.clients, given.turns)
            figures |= faults.measure(folder / f"seed-{given.seed}", *asked, tell)
        if "learning" in (given.only or PARTS):
            place = folder / f"learning-{given.seed}"
            figures |= learning.measure(place, given.seed, given.faults, given.clients, tell)
        if "machine" in (given.only or PARTS):
            figures |= machine.measure(folder / f"machine-{given.seed}", given.seed, given.faults, given.clients, tell)
        if "database" in (given.only or PARTS):
            place = folder / f"database-{given.seed}"
            figures |= database.measure(place, given.seed, given.faults, given.clients, tell)
        if "power" in (given.only or PARTS):
            figures |= power.measure(temporary / "power", given.seed, tell)
        if SOAK in (given.only or ()):
            figures |= soak.measure(folder / "soak", given.hours, given.clients, tell)
        if "restore" in (given.only or PARTS):
            figures |= restore.measure(temporary / "restore", tell)
    bars.show(console, "chaos", BARS, figures)
    bars.show_rest(console, BARS, figures)
    sys.exit(bars.finish(console, BARS, figures, given.json))


if __name__ == "__main__":
    main()
