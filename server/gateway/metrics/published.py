"""The counts of all gateway processes of one state directory, added up.

Each process writes its counts to a file of its own once a second, beside the requests. The file of a process that has
ended is added to `ended.json` once and then removed, so that no total ever falls. A process that is killed loses at
most its last second. A lock beside each file says whether its process lives.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from burnish.files import UNREADABLE, hold, instance, is_held, replace_text
from burnish.server.gateway.metrics.counts import Sample

INTERVAL = 1.0
STALE_SECONDS = 5.0
"""A file that is younger is not looked at for the end of its process."""
IN_FLIGHT = "in_flight"
"""The one figure that is no count. It ends with its process."""
N_REMEMBERED = 256
"""Names of processes whose files were added to `ended.json` last."""
Totals = dict[tuple[str, tuple[str, ...]], list[float]]
log = structlog.get_logger(__name__)


class Published:
    """This process's file. `samples` gives its counts."""

    def __init__(self, run_dir: Path, samples: Callable[[], list[Sample]]) -> None:
        folder = folder_of(run_dir)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"gateway-{instance()}.json"
        self._lock = hold(self._path.with_suffix(".lock"))
        self._samples = samples
        self._written = ""

    async def publish_forever(self) -> None:
        """Write the file every second in which a count has changed. The first of several disk errors is logged, and
        the write is tried again; requests do not notice.
        """
        is_failing = False
        while True:
            await asyncio.sleep(INTERVAL)
            try:
                await asyncio.to_thread(self._write)
                is_failing = False
            except OSError as error:
                if not is_failing:
                    log.warning("cannot write the counts", path=str(self._path), error=str(error))
                is_failing = True

    def close(self) -> None:
        """Write the last counts. The file stays, to be added to the ended ones."""
        with suppress(OSError):
            self._write()
        self._path.with_suffix(".lock").unlink(missing_ok=True)
        os.close(self._lock)

    def _write(self) -> None:
        if (text := json.dumps(self._samples())) != self._written:
            replace_text(self._path, text, is_durable=False)
            self._written = text


def folder_of(run_dir: Path) -> Path:
    return run_dir / "metrics"


def totals(run_dir: Path) -> Totals:
    """The sum over all processes, ended ones too. A file that cannot be read is left out and logged."""
    folder = folder_of(run_dir)
    # The processes' files come before the ended ones: a file that is folded in between is then found in one of the two.
    found = dict(_files(folder))
    ended = _ended(folder)
    total: Totals = {}
    _add(total, ended["samples"])
    for name, samples in found.items():
        if name not in ended["names"]:
            _add(total, samples)
    return total


def fold(run_dir: Path) -> None:
    """Add the files of ended processes to `ended.json`. Does nothing while another process does it."""
    folder = folder_of(run_dir)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = hold(folder / "fold.lock")
    except BlockingIOError:
        return
    try:
        ended = _ended(folder)
        gone = {name: samples for name, samples in _files(folder) if _is_over(folder / name)}
        total: Totals = {}
        _add(total, ended["samples"])
        for name, samples in gone.items():
            if name not in ended["names"]:
                _add(total, [sample for sample in samples if sample[0] != IN_FLIGHT])
        if gone:
            names = list(dict.fromkeys([*ended["names"], *gone]))[-N_REMEMBERED:]
            kept = [[name, labels, numbers] for (name, labels), numbers in total.items()]
            replace_text(folder / "ended.json", json.dumps({"names": names, "samples": kept}))
        for name in gone:
            (folder / name).unlink(missing_ok=True)
            (folder / name).with_suffix(".lock").unlink(missing_ok=True)
    finally:
        os.close(lock)


def _files(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    for path in sorted(folder.glob("gateway-*.json")):
        try:
            yield path.name, json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except UNREADABLE as error:
            log.warning("a process's counts cannot be read", path=str(path), error=repr(error))


def _ended(folder: Path) -> dict[str, Any]:
    try:
        tree: dict[str, Any] = json.loads((folder / "ended.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"names": [], "samples": []}
    except UNREADABLE as error:
        log.warning("the counts of ended processes cannot be read; they begin anew", error=repr(error))
        return {"names": [], "samples": []}
    return tree


def _is_over(path: Path) -> bool:
    try:
        age = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return False
    return age > STALE_SECONDS and not is_held(path.with_suffix(".lock"))


def _add(total: Totals, samples: list[Any]) -> None:
    for name, labels, numbers in samples:
        key = (name, tuple(labels))
        before = total.get(key)
        # histograms of an earlier release may have other buckets: what does not fit begins anew
        fits = before is not None and len(before) == len(numbers)
        total[key] = [a + b for a, b in zip(before, numbers, strict=True)] if fits and before else list(numbers)
