"""On a GPU of its own host, the learner loads its model only after the engine has measured the GPU's memory."""

import pytest

from burnish import config
from burnish.learner.run import process
from burnish.learner.run.throttle import TokenGaps


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the engine was asked. It answers the fourth time."""
    times: list[int] = []

    def token_gaps(urls: object, key: str) -> TokenGaps | None:
        times.append(len(times))
        return TokenGaps(0.0, 0.0) if len(times) == 4 else None

    monkeypatch.setattr(process, "token_gaps", token_gaps)
    monkeypatch.setattr(process, "ENGINE_PAUSE", 0.0)
    return times


def test_it_waits_until_the_engine_answers(asked: list[int]) -> None:
    process.await_engine(config.load(flags={"learner.device": "cuda"}), "key", lambda: False)
    assert len(asked) == 4


def test_it_stops_waiting_when_it_is_told_to(asked: list[int]) -> None:
    process.await_engine(config.load(flags={"learner.device": "cuda"}), "key", lambda: True)
    assert len(asked) == 2


@pytest.mark.parametrize("flags", [{"learner.device": "cpu"}, {"engine.urls": ["http://127.0.0.1:1"]}])
def test_without_a_shared_gpu_it_does_not_wait(flags: dict[str, object], asked: list[int]) -> None:
    process.await_engine(config.load(flags={"learner.device": "cuda"} | flags), "key", lambda: False)
    assert not asked
