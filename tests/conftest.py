"""Fixtures for several folders: a real vLLM server, started once, for the tests marked `engine`."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from vllm_process import VllmServer, boot, tail

from burnish.config import SANDBOX_MODEL

os.environ.pop("COLUMNS", None)  # xdist sets it, and Rich would take this width for a console's whole life
hypothesis.settings.register_profile("burnish", deadline=None)  # a busy machine is no defect
hypothesis.settings.load_profile("burnish")
_RUNNING = pytest.StashKey[VllmServer]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--vllm-model", default=str(SANDBOX_MODEL), help="model directory for the tests marked `engine`")


@pytest.fixture(scope="session")
def vllm_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """One vLLM for the whole session, on the sandbox's model or the one of --vllm-model."""
    model = Path(request.config.getoption("--vllm-model"))
    if not (model / "config.json").exists():
        pytest.skip(f"no model in {model}")
    with boot(model, tmp_path_factory.mktemp("vllm")) as server:
        request.config.stash[_RUNNING] = server
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    """Print the end of vLLM's log with every failure of a test that used it."""
    report = yield
    server = item.config.stash.get(_RUNNING, None)
    if report.failed and server is not None and "vllm_server" in getattr(item, "fixturenames", ()):
        report.sections.append(("vLLM log, last lines", tail(server.log)))
    return report
