"""The pace of a trial: requests side by side while nobody is served, one after the other beside live streams."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from swap_world import World

from tests.fakes import FakeEngine


class Counting(FakeEngine):
    """Counts concurrent and total requests for next tokens."""

    n_now = n_most = n_asked = 0

    async def next_logprobs(self, model: str, token_ids: Sequence[int]) -> Mapping[int, float]:
        self.n_now, self.n_asked = self.n_now + 1, self.n_asked + 1
        self.n_most = max(self.n_most, self.n_now)
        await asyncio.sleep(0.005)
        self.n_now -= 1
        return await super().next_logprobs(model, token_ids)


@pytest.mark.parametrize(("in_flight", "n_most"), [({}, 2), ({"agent@v3": 1}, 1)], ids=["idle", "busy"])
async def test_live_streams_are_asked_beside_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_flight: dict[str, int], n_most: int
) -> None:
    monkeypatch.chdir(tmp_path)
    world = World(tmp_path / "state")
    engine = Counting("http://engine-0")
    world.engines[:] = [engine]
    world.gateway_reports(**in_flight)
    world.announce(1)
    assert await world.restarted().run_once()
    assert world.live() == 1
    assert engine.n_asked >= 2  # the probe of these versions has two places
    assert engine.n_most == n_most
