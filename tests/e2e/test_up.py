"""The whole with a real vLLM: it serves, survives its engine's death, and leaves no process behind."""

import os
import signal
from collections.abc import Iterator

import pytest

from burnish.adapters.registry import lifecycle
from burnish.records import VersionState
from tests.e2e.whole import Whole, journal_of, learn_once, until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    running = Whole(
        tmp_path_factory.mktemp("whole") / "state", {"learner.min_rows": 4, "learner.recipe.anchor_rows": 4}
    )
    running.start()
    try:
        running.wait_ready()
        yield running
    finally:
        if running.process is not None and running.process.poll() is None:
            running.stop()


def test_a_reply_comes_from_the_version_that_it_names(whole: Whole) -> None:
    status, reply, headers = whole.chat("Reverse 4 17.")
    assert status == 200
    assert reply["choices"][0]["message"]["content"]
    assert headers["x-burnish-version"] == reply["system_fingerprint"]
    assert "token_ids" not in reply["choices"][0]


def test_feedback_trains_a_version_that_goes_live(whole: Whole) -> None:
    version = learn_once(whole)
    assert version >= 1
    _, reply, _ = whole.chat("Reverse 4 17.")
    assert reply["system_fingerprint"].startswith("agent@v")
    with journal_of(whole).read() as session:
        row = lifecycle.version(session, "agent", version)
    assert row.state in (VersionState.LIVE, VersionState.RETIRED)
    assert row.evidence["probe"] and row.evidence["retention"]


def test_rollback_by_admin_is_a_pointer_flip_and_needs_the_admin_key(whole: Whole) -> None:
    if whole.chat("Copy 1 2.")[1]["system_fingerprint"] == "agent@v0":
        learn_once(whole)
    assert whole.request("/admin/agents/agent/rollback", {})[0] == 401
    admin = (whole.state / "admin.key").read_text().strip()
    state = whole.request("/admin/agents/agent/versions", key=admin)[1]
    status, said, _ = whole.request("/admin/agents/agent/rollback", {"reason": "test"}, admin)
    assert status == 200, said
    assert whole.chat("Copy 1 2.")[1]["system_fingerprint"] == f"agent@v{state['previous']}"
    assert whole.request("/admin/agents/agent/promote", {"version": state["live"], "expected": 999}, admin)[0] == 409


def test_engine_killed_gives_503_with_retry_after_and_comes_back_by_itself(whole: Whole) -> None:
    if whole.chat("Copy 1 2.")[1]["system_fingerprint"] == "agent@v0":
        learn_once(whole)
    version = whole.chat("Copy 1 2.")[1]["system_fingerprint"]
    os.kill(whole.pid_of("burnish.processes.vllm_on_cpu"), signal.SIGKILL)
    seen: list[tuple[int, str | None]] = []

    def is_back() -> bool:
        status, body, headers = whole.chat("Copy 1 2.")
        seen.append((status, headers.get("retry-after")))
        if status == 200:
            assert body["system_fingerprint"].startswith("agent@v")
        else:
            assert body["error"]["code"] == "engine_unavailable"
        return status == 200 and len(seen) > 1

    until(is_back, "the engine to come back")
    assert {status for status, _ in seen} == {200, 503}
    assert all(after is not None and float(after) > 0 for status, after in seen if status == 503)
    admin = (whole.state / "admin.key").read_text().strip()
    assert whole.request("/admin/agents/agent/versions", key=admin)[1]["live"] >= int(version.partition("@v")[2])


def test_ctrl_c_ends_everything_and_leaves_no_orphan(whole: Whole) -> None:
    assert len(whole.members()) >= 6
    assert whole.stop(signal.SIGINT) == 0
    until(lambda: not whole.members(), f"the last processes to go: {whole.members()}", 60)
