"""A part waits for its database in its own process."""

import errno

import pytest
from sqlalchemy.exc import OperationalError

from burnish.errors import JournalUnavailable
from burnish.journal import outage
from burnish.journal.outage import LONGEST_PAUSE, Outage, repeat

GONE = OperationalError("SELECT 1", {}, Exception("connection refused"))


async def test_work_goes_on_after_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    full = OSError(errno.ENOSPC, "No space left on device")
    answers: list[Exception | bool] = [True, GONE, JournalUnavailable("away"), full, False, GONE, True]

    async def nap(seconds: float) -> None:
        naps.append(seconds)

    async def run_once() -> bool:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(outage.asyncio, "sleep", nap)
    await repeat(run_once, lambda: not answers, 0.125)
    assert naps == [0.5, 1.0, 2.0, 0.125, 0.5]  # after work that went well, the next error is the first one again


@pytest.mark.parametrize("error", [ZeroDivisionError(), FileNotFoundError(errno.ENOENT, "no such file")])
async def test_an_error_of_ours_is_no_outage(error: Exception) -> None:
    async def breaks() -> None:
        raise error

    with pytest.raises(type(error)):
        await repeat(breaks, lambda: False, 0.1)


def test_pauses_grow_to_a_bound_and_begin_anew_when_it_is_over() -> None:
    waiting = Outage()
    pauses = [waiting.pause(GONE) for _ in range(6)]
    assert pauses == sorted(pauses) and pauses[-1] == LONGEST_PAUSE
    waiting.over()
    assert waiting.pause(GONE) == pauses[0]
