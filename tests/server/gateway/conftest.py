"""A stub engine with two loaded adapters, and a gateway in front of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from gateways import ENGINE_KEY, Running, serve

from burnish.testing import StubEngine


@pytest.fixture
def engine() -> Iterator[StubEngine]:
    with StubEngine(api_key=ENGINE_KEY, loaded={"agent@v1": "/a/1", "agent@v2": "/a/2"}) as stub:
        yield stub


@pytest.fixture
def gateway(tmp_path: Path, engine: StubEngine) -> Iterator[Running]:
    with serve(tmp_path, engine) as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One gateway for the tests that only ask and change nothing."""
    stub = StubEngine(api_key=ENGINE_KEY, loaded={"agent@v1": "/a/1", "agent@v2": "/a/2"})
    with stub, serve(tmp_path_factory.mktemp("shared"), stub) as running:
        yield running
