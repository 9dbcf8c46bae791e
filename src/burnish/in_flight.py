"""The gateways' in-flight reports (`server/gateway/heartbeat.py`), read to decide when a version may be unloaded."""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from burnish.files import is_held

STALE_SECONDS = 5.0


def path_of(run_dir: Path, name: str) -> Path:
    """The report of the gateway process `name`."""
    return run_dir / f"gateway-{name}.json"


def lock_of(report: Path) -> Path:
    """The file that the gateway holds while it lives, whatever container it is in."""
    return report.with_suffix(".lock")


class Report(NamedTuple):
    """One gateway process's report: the generation of the serving table that it has seen, and its requests by version
    name.
    """

    generation: int
    in_flight: Mapping[str, int]


def is_drained(run_dir: Path, model: str, generation: int) -> bool:
    """True if every living gateway has seen `generation` and has no request on `model`."""
    return all(
        report is not None and report.generation >= generation and not report.in_flight.get(model, 0)
        for report in _reports(run_dir)
    )


def in_flight(run_dir: Path) -> set[str] | None:
    """The names of versions with a running request. None if a living gateway's report cannot be read."""
    names: set[str] = set()
    for report in _reports(run_dir):
        if report is None:
            return None
        names |= {name for name, n in report.in_flight.items() if n}
    return names


def _reports(run_dir: Path) -> Iterator[Report | None]:
    """Every living gateway's report. None for one that cannot be read."""
    for path in run_dir.glob("gateway-*.json"):
        try:
            report: Mapping[str, object] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            yield None
            continue
        at, seen, counts = report.get("at"), report.get("generation"), report.get("in_flight")
        if not isinstance(at, float) or not isinstance(seen, int) or not isinstance(counts, dict):
            yield None
            continue
        if abs(time.time() - at) > STALE_SECONDS and not is_held(lock_of(path)):
            path.unlink(missing_ok=True)  # its process is gone, and so are its requests
            lock_of(path).unlink(missing_ok=True)
            continue
        yield Report(seen, counts)
