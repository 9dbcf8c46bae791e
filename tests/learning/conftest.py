"""What all tests of the benchmark of learning share."""

import pytest


@pytest.fixture(autouse=True)
def loggers_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command would bind the loggers of this whole session to a stream that ends with its test."""
    monkeypatch.setattr("burnish.logs.configure", lambda *_: None)
