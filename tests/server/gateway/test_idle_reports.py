"""A gateway writes its reports when they change, and now and then. Not twice a second for nobody."""

import asyncio
import json
from pathlib import Path

import pytest

from burnish import serving_table
from burnish.in_flight import STALE_SECONDS, in_flight
from burnish.server.gateway import heartbeat as module
from burnish.server.gateway.heartbeat import REPEAT_SECONDS, Heartbeat
from burnish.server.gateway.metrics.counts import Sample
from burnish.server.gateway.metrics.published import Published


async def test_an_unchanged_in_flight_report_is_not_written_again_and_a_change_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert REPEAT_SECONDS < STALE_SECONDS
    monkeypatch.setattr(module, "INTERVAL", 0.001)
    written: list[str] = []
    replace = module.replace_text

    def write(path: Path, text: str, **options: bool) -> None:
        written.append(text)
        replace(path, text, **options)

    monkeypatch.setattr(module, "replace_text", write)
    n_looks = 0

    def looked() -> None:
        nonlocal n_looks
        n_looks += 1

    heartbeat = Heartbeat(tmp_path, serving_table.watch(tmp_path / "routes.json"))
    task = asyncio.create_task(heartbeat.publish_forever(looked))

    async def look(n: int) -> None:
        until = n_looks + n
        async with asyncio.timeout(30):
            while n_looks < until:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    await look(20)
    assert len(written) == 1
    with heartbeat.hold("agent@v1"):
        await look(20)
        assert len(written) == 2 and in_flight(tmp_path) == {"agent@v1"}
    await look(20)
    assert len(written) == 3 and json.loads(written[-1])["in_flight"] == {}
    monkeypatch.setattr(module, "REPEAT_SECONDS", 0.0)
    with heartbeat.hold("agent@v2"):
        await look(20)
    assert len(written) > 5
    task.cancel()
    heartbeat.remove()


def test_unchanged_counts_are_not_written_again(tmp_path: Path) -> None:
    counts: list[Sample] = [("burnish_records_total", ("written",), [1])]
    published = Published(tmp_path, lambda: counts)
    published._write()
    file = published._path
    before = file.stat().st_ino
    published._write()
    assert file.stat().st_ino == before
    counts[0] = ("burnish_records_total", ("written",), [2])
    published._write()
    assert file.stat().st_ino != before
    published.close()
