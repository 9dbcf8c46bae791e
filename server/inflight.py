"""When a version may be unloaded: what the gateways' in-flight reports (`server/heartbeat.py`) add up to."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

STALE_SECONDS = 5.0


def path_of(run_dir: Path, pid: int) -> Path:
    """The report of the gateway process `pid`."""
    return run_dir / f"gateway-{pid}.json"


def is_drained(run_dir: Path, model: str, generation: int) -> bool:
    """True when every living gateway has seen `generation` and has no request on `model` in flight."""
    for path in run_dir.glob("gateway-*.json"):
        try:
            report: Mapping[str, object] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return False
        at, seen, in_flight = report.get("at"), report.get("generation"), report.get("in_flight")
        if not isinstance(at, float) or not isinstance(seen, int) or not isinstance(in_flight, dict):
            return False
        pid = report.get("pid")
        if time.time() - at > STALE_SECONDS and not (isinstance(pid, int) and _lives(pid)):
            continue  # its process is gone, and with it its requests
        if seen < generation or in_flight.get(model, 0):
            return False
    return True


def _lives(pid: int) -> bool:
    """Whether a process `pid` exists on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
