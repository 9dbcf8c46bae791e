"""The first run with a model of one's own, with nothing set but the model: it is served, rated, and gets a version.

The model is a random one. It passes no forgetting prompt and cannot judge, so the whole rests on what any base can do.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.whole import Whole, until
from tests.model_dirs import tiny_llama

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
N_REPLIES = 64
"""Most replies to rate. A step begins with 16 that their length limit did not cut, and it cuts about a third."""
COMMENTS = {4: "Please answer in one short sentence.", 8: "That is not English.", 13: "Use plain words."}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    folder = tmp_path_factory.mktemp("own")
    running = Whole(folder / "state", {"engine.model": str(tiny_llama(folder / "model"))})
    running.start()
    try:
        running.wait_ready()
        yield running
    finally:
        if running.process is not None and running.process.poll() is None:
            running.stop()


def rate(whole: Whole) -> None:
    """Ask, and rate what comes: thumbs up and down, and now and then a comment. Ends when a version answers."""
    key = (whole.state / "admin.key").read_text().strip()
    for n in range(N_REPLIES):
        status, reply, headers = whole.chat(f"What is {n} plus {n}?")
        assert status == 200
        if headers["x-burnish-version"] != "agent@v0":
            return
        body: dict[str, Any] = {"target": reply["id"], "rating": "up" if n % 3 == 0 else "down"}
        if n in COMMENTS:
            body["comment"] = COMMENTS[n]
        assert whole.request("/v1/feedback", body, key)[0] == 202


def told(whole: Whole, *arguments: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "burnish", *arguments, "--state", whole.state.name]
    return subprocess.run(command, cwd=whole.state.parent, capture_output=True, text=True, check=True).stdout


def test_a_random_model_is_rated_and_gets_a_version_live(whole: Whole) -> None:
    rate(whole)
    until(lambda: whole.chat("Hello?")[2]["x-burnish-version"] != "agent@v0", "a version to be live", 240)
    _, reply, headers = whole.chat("Hello?")
    assert reply["system_fingerprint"] == headers["x-burnish-version"] == "agent@v1"
    log = (whole.state.parent / "up.log").read_text()
    said = re.compile(r"the base passes only \d of 495 forgetting prompts \(64 are needed\), so the gate compares")
    shown = told(whole, "versions", "show", "1", "--json")
    assert '"measure": "predictions"' in shown
    assert all(said.search(text) for text in (log, shown, told(whole, "status")))
    assert "the judge base (model) has not been checked yet" in log
