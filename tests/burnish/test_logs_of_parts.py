"""What ingester, judge, learner and swapper log when something fails: type and place, and no word of a conversation."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import structlog

from burnish import logs
from burnish.errors import AdapterError, EngineError, EngineUnavailable
from burnish.journal import Journal
from burnish.judges.judge import JudgeRefused, JudgeUnavailable
from burnish.judges.models.local import LocalJudge
from burnish.judges.models.remote import RemoteJudge
from burnish.learner.run.loop import Loop
from burnish.learner.run.scheduler import Scheduler
from burnish.processes.ray_actors import _type_and_place
from burnish.segments import file
from burnish.server.ingest import ingester
from burnish.server.rollout.canary.mirror import Mirror
from burnish.server.rollout.engine.vllm_http import VllmHttp
from burnish.server.rollout.shadow_groups.drawer import Drawer
from tests.factories import user
from tests.journals import journal, migrated_file, sqlite_url
from tests.judges.test_worker import FakeJudge, add_judgeable, make_worker
from tests.server.ingest.pen import Pen, ingest

__all__ = ["journal", "migrated_file", "sqlite_url"]
QUIET = SimpleNamespace(number=lambda: 0)
WORDS = "planted-words-of-a-user"
FAULTS = [ValueError(WORDS), KeyError(WORDS), UnicodeDecodeError("utf-8", WORDS.encode(), 0, 1, "bad")]


@pytest.fixture(autouse=True, params=["console", "json"])
def _log(request: pytest.FixtureRequest) -> Iterator[None]:
    before = structlog.get_config()
    logs.configure(request.param, "test")
    structlog.configure(cache_logger_on_first_use=False)
    yield
    structlog.contextvars.clear_contextvars()
    structlog.configure(**before)


@pytest.fixture(params=FAULTS, ids=lambda fault: type(fault).__name__)
def fault(request: pytest.FixtureRequest) -> Exception:
    found: Exception = request.param
    return found.with_traceback(None)


def logged(capsys: pytest.CaptureFixture[str], *words: str) -> None:
    """Checks that all of `words` were logged and nothing of the user's."""
    captured = capsys.readouterr()
    shown = captured.out + captured.err
    assert WORDS not in shown
    assert all(each in shown for each in words), shown


def fail_with(fault: Exception) -> Any:
    def fail(*_: object, **__: object) -> Any:
        raise fault

    return fail


def test_the_ingester_that_cannot_store_a_record(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    fault: Exception,
) -> None:  # fmt: skip
    pen = Pen(tmp_path / "segments")
    turn = pen.say([user(WORDS)], WORDS)
    monkeypatch.setattr(ingester, "without_unstorable", fail_with(fault))
    ingest(journal, pen)
    logged(capsys, "a record cannot be stored", turn.interaction_id, type(fault).__name__)


def test_the_ingester_that_cannot_read_a_record(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    fault: Exception,
) -> None:  # fmt: skip
    pen = Pen(tmp_path / "segments")
    pen.say([user(WORDS)], WORDS)
    monkeypatch.setattr(file, "decode", fail_with(fault))
    ingest(journal, pen)
    logged(capsys, "a record cannot be read", f"{type(fault).__name__} at test_logs_of_parts.py:")


async def test_the_judge_that_breaks_at_a_turn(
    journal: Journal, capsys: pytest.CaptureFixture[str], fault: Exception
) -> None:
    add_judgeable(journal)
    assert await make_worker(journal, FakeJudge(fault), max_attempts=1).run_once() == 1
    logged(capsys, "cannot judge a turn", "a turn is left unjudged", f"{type(fault).__name__} at ")


async def test_the_judge_whose_server_quotes_the_turn(journal: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    judge = LocalJudge("http://127.0.0.1:1", "m")
    with pytest.raises(JudgeRefused) as refused:
        judge._texts(400, f"cannot read {WORDS}")
    add_judgeable(journal)
    await make_worker(journal, FakeJudge(refused.value), max_attempts=1).run_once()
    logged(capsys, "the judge answered 400")
    assert WORDS in str(refused.value)  # an operator finds it in the journal


async def test_the_judge_whose_provider_quotes_the_turn(
    journal: Journal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = RemoteJudge("openai/x")

    async def ask(*_: object, **__: object) -> list[BaseException]:
        return [httpx.HTTPError(f"cannot read {WORDS}")]

    monkeypatch.setattr(judge, "_ask", ask)
    with pytest.raises(JudgeUnavailable) as away:
        await judge.answers([{"role": "user", "content": WORDS}], 1)
    add_judgeable(journal)
    await make_worker(journal, FakeJudge(away.value), max_attempts=1).run_once()
    logged(capsys, "did not answer: HTTPError")


def test_the_learner_whose_step_breaks(capsys: pytest.CaptureFixture[str], fault: Exception) -> None:
    world: Any = SimpleNamespace(
        _overlays={}, _resting={}, _loops={"agent": SimpleNamespace(release_lease=lambda: None)}
    )
    loop: Any = SimpleNamespace(_loaded=SimpleNamespace(), _ledger=SimpleNamespace(fail=lambda *_: "failed"))
    step: Any = SimpleNamespace(version=3)
    try:
        raise AdapterError(f"rows are lost: {len(WORDS)}") from fault
    except AdapterError as error:
        Scheduler._let_rest(world, "agent", error)
    Loop._fail(loop, step, fault)
    logged(capsys, "an agent's step broke", "rows are lost", "a step failed", type(fault).__name__)


async def test_the_swapper_whose_engine_quotes_a_turn(capsys: pytest.CaptureFixture[str]) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = f"cannot read {WORDS}".encode()
        writer.write(b"HTTP/1.1 %d No\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))
        await writer.drain()
        writer.close()

    status = 400
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    http = VllmHttp(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    with pytest.raises(EngineError) as refused:
        await http.call("POST", "/v1/chat/completions", {"messages": WORDS})
    status = 500
    with pytest.raises(EngineUnavailable) as failed:
        await http.call("POST", "/v1/chat/completions", {"messages": WORDS})
    await http.close()
    server.close()
    await _draw_and_mirror(failed.value)
    logged(capsys, "no shadows while the engine does not answer", "the shadow waits", "the engine answered 500")
    assert logs.told(refused.value) == "POST /v1/chat/completions: the engine answered 400"


async def test_the_swapper_that_breaks_at_a_turn(capsys: pytest.CaptureFixture[str], fault: Exception) -> None:
    rounds = iter([False, True])
    drawer: Any = SimpleNamespace(_journal=SimpleNamespace(changes=QUIET), run_once=fail_with(fault))
    await Drawer.run_forever(drawer, lambda: next(rounds, True), 0.0)
    logged(capsys, "drawing shadows failed", type(fault).__name__)


async def _draw_and_mirror(away: EngineUnavailable) -> None:
    for part in (Drawer, Mirror):
        rounds = iter([False, True])
        made: Any = SimpleNamespace(_journal=SimpleNamespace(changes=QUIET), run_once=fail_with(away), _due=lambda: 0.0)
        await part.run_forever(made, lambda rounds=rounds: next(rounds, True), 0.0)  # type: ignore[misc]


def test_an_actors_error_is_cut_to_type_and_place() -> None:
    class TaskError(Exception):
        cause = ValueError(WORDS)

    text = f'ray::Body.run()\n  File "/app/judges/worker.py", line 176, in judge\nValueError: {WORDS}'
    assert _type_and_place(TaskError(text)) == "ValueError at /app/judges/worker.py:176"
    assert _type_and_place(TaskError(WORDS)) == "ValueError"
