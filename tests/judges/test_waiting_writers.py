"""While another process writes to SQLite, judging waits for its turn in a thread. Its event loop goes on."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from burnish import config
from burnish.files import hold
from burnish.journal import Journal
from burnish.judges.comparison.comparer import Comparer
from burnish.judges.comparison.grader import Grader
from burnish.judges.models.panel import Panel
from burnish.judges.worker import Worker


@pytest.mark.parametrize("make", [Worker, Comparer, Grader])
async def test_the_event_loop_goes_on_while_another_process_writes(
    journal: Journal, tmp_path: Path, make: Callable[..., Any]
) -> None:
    handle, n_ticks = hold(tmp_path / "journal.db.writers"), 0

    async def end() -> None:
        nonlocal n_ticks
        for _ in range(5):
            await asyncio.sleep(0.01)
            n_ticks += 1
        os.close(handle)

    ending = asyncio.create_task(end())
    await make(journal, Panel([SimpleNamespace(model="m")]), config.Judge()).run_once()
    assert n_ticks == 5
    await ending
