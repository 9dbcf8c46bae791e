"""A part waits for its database in its own process."""

import pytest
from sqlalchemy.exc import OperationalError

from burnish.errors import JournalUnavailable
from burnish.journal import outage
from burnish.journal.outage import LONGEST_PAUSE, Outage, repeat

GONE = OperationalError("SELECT 1", {}, Exception("connection refused"))


async def test_work_goes_on_after_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    answers: list[Exception | bool] = [True, GONE, JournalUnavailable("away"), False, True]

    async def nap(seconds: float) -> None:
        naps.append(seconds)

    async def run_once() -> bool:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(outage.asyncio, "sleep", nap)
    await repeat(run_once, lambda: not answers, 0.125)
    assert naps == [0.5, 1.0, 0.125]


async def test_an_error_of_ours_is_no_outage() -> None:
    async def breaks() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await repeat(breaks, lambda: False, 0.1)


def test_pauses_grow_to_a_bound_and_begin_anew_after_a_quiet_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(outage.time, "monotonic", lambda: now)
    waiting = Outage()
    pauses = [waiting.pause(GONE) for _ in range(6)]
    assert pauses == sorted(pauses) and pauses[-1] == LONGEST_PAUSE
    now = 2000.0
    assert waiting.pause(GONE) == pauses[0]
