"""A stage for each test of a harness, and the table of what all of them did."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import REPORT, markdown
from burnish import serving_table
from burnish.keys import Scope, mint
from burnish.testing import Script, ScriptedEngine
from tests.harness import report
from tests.harness.environment import environment
from tests.harness.stage import Stage
from tests.server.gateway.gateways import ENGINE_KEY, Running, serve

LOADED = {"agent@v1": "/a/1", "agent@v2": "/a/2"}
_TABLE = pytest.StashKey[report.Table]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--harness", action="append", default=[], help="only this harness (may be given several times)")
    parser.addoption("--harness-report", type=Path, default=REPORT, help="where the table goes")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TABLE] = report.Table()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("--harness", default=[])
    others = []
    for item in items:
        name = harness_of(item)
        if name is not None:
            item.add_marker(pytest.mark.harness)
            item.add_marker(pytest.mark.timeout(1500))  # a first run installs
            if wanted and name not in wanted:
                others.append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


def harness_of(item: pytest.Item) -> str | None:
    """The harness that a test drives: its module's HARNESS."""
    return getattr(getattr(item, "module", None), "HARNESS", None)


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """A gateway before an engine that plays the module's SCRIPT, and the module's HARNESS, installed."""
    script: Script = request.module.SCRIPT
    installed = environment(request.module.HARNESS)
    with (
        ScriptedEngine(script=script, api_key=ENGINE_KEY, loaded=dict(LOADED)) as engine,
        serve(tmp_path / "state", engine, commands=("*",)) as gateway,
    ):
        _let_rate(gateway)
        made = Stage(installed, gateway, engine, tmp_path)
        request.node.stash[_STAGE] = made
        yield made


_STAGE = pytest.StashKey[Stage]()


def _let_rate(gateway: Running) -> None:
    """The harnesses' key speaks for a user too."""
    gateway.secrets["talker"], key = mint([Scope.INFERENCE, Scope.FEEDBACK])
    path = gateway.settings.run_dir / "routes.json"
    serving_table.update(path, lambda table: replace(table, keys={**table.keys, key.digest: key}))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    outcome = yield
    name = harness_of(item)
    if name is not None and (outcome.when == "call" or outcome.failed):
        item.config.stash[_TABLE].add(name, item.stash.get(_STAGE, None), outcome)
    return outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    session.config.stash[_TABLE].write(session.config.getoption("--harness-report", default=REPORT))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if rows := config.stash[_TABLE].rows():
        terminalreporter.section("harnesses")
        terminalreporter.write_line(markdown(rows))
