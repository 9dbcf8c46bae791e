"""Failing engines and leaving clients: a clear error for the rest, and no sampled token is lost."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from gateways import HELLO, Running, make_keys, records, serve, write_table

from burnish.config import Gateway, Settings, to_environment
from burnish.serving_table import Routes
from burnish.testing import Failure, StubEngine


def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


def assert_unavailable(response: httpx.Response) -> None:
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("service_unavailable_error", "engine_unavailable")
    assert "try again" in error["message"]
    assert "scripted" not in response.text


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("failure", [Failure.REFUSE, Failure.FULL])
def test_an_engine_that_refuses_is_a_503(gateway: Running, failure: Failure, stream: bool) -> None:
    gateway.engine.failure = failure
    assert_unavailable(gateway.chat(stream=stream))


@pytest.mark.parametrize("stream", [True, False])
def test_an_engine_that_is_down_is_a_503_until_it_is_back(gateway: Running, stream: bool) -> None:
    assert gateway.chat().status_code == 200
    gateway.engine.stop()
    assert_unavailable(gateway.chat(stream=stream))
    gateway.engine.start()
    assert gateway.chat(stream=stream).status_code == 200


def test_a_version_that_the_engine_lost_is_a_503(gateway: Running) -> None:
    gateway.engine.loaded.clear()
    assert_unavailable(gateway.chat())


def test_no_engine_at_all_is_a_503(gateway: Running) -> None:
    write_table(gateway.settings, (), make_keys()[1])
    assert_unavailable(gateway.chat())


def test_an_engine_that_refuses_our_key_is_a_503_without_the_key(gateway: Running) -> None:
    gateway.engine.api_key = "changed"
    response = gateway.chat()
    assert response.status_code == 503
    assert "engine-secret" not in response.text


def test_the_next_engine_is_asked_when_one_is_down(tmp_path: Path, engine: StubEngine) -> None:
    with StubEngine() as dead:
        pass
    with serve(tmp_path, engine) as gateway:
        write_table(gateway.settings, (dead.url, f"{engine.url}/v1/"), make_keys()[1])
        assert [gateway.chat().status_code for _ in range(4)] == [200] * 4


@pytest.mark.parametrize("failure", [Failure.CUT, Failure.ERROR_EVENT])
def test_an_engine_that_dies_in_mid_stream_ends_with_an_error_event(gateway: Running, failure: Failure) -> None:
    gateway.engine.failure = failure
    gateway.engine.token_delay = 0.02
    response = gateway.chat(stream=True)
    *_, last = [line for line in response.text.splitlines() if line]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "engine_unavailable"
    (row,) = gateway.interactions
    assert (row.is_aborted, row.finish_reason) == (True, None)
    assert list(row.token_ids) == list(b"hello"[: len(row.token_ids)])
    assert 1 <= len(row.token_ids) == len(row.logprobs) < 5


def test_an_engine_that_dies_before_a_whole_reply_is_a_503(gateway: Running) -> None:
    gateway.engine.failure = Failure.CUT
    assert_unavailable(gateway.chat())
    assert gateway.interactions == []


def test_a_client_that_leaves_takes_its_engine_request_with_it(gateway: Running) -> None:
    gateway.engine.replies = ["a long reply " * 20]
    gateway.engine.token_delay = 0.02
    body = {"model": "agent", "messages": HELLO, "stream": True}
    with gateway.client() as client, client.stream("POST", "/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if '"l"' in line:
                break
    until(lambda: gateway.interactions)
    until(lambda: gateway.engine.n_aborted == 1)
    (row,) = gateway.interactions
    assert row.is_aborted
    assert row.reply["content"].startswith("a l")
    assert len(row.token_ids) < 60
    until(lambda: not in_flight(gateway))


def test_a_client_that_leaves_before_a_whole_reply_frees_the_engine(gateway: Running) -> None:
    gateway.engine.token_delay = 1.0
    with gateway.client() as client, pytest.raises(httpx.ReadTimeout):
        client.post("/v1/chat/completions", json={"model": "agent", "messages": HELLO}, timeout=0.3)
    until(lambda: gateway.engine.n_aborted == 1)
    assert gateway.interactions == []


def test_requests_in_flight_are_told_by_version(gateway: Running) -> None:
    gateway.engine.replies = ["x" * 15]
    gateway.engine.token_delay = 0.1
    threads = [
        threading.Thread(target=gateway.chat, kwargs={"model": model}) for model in ("agent", "agent", "agent@v1")
    ]
    for thread in threads:
        thread.start()
    until(lambda: in_flight(gateway) == {"agent@v2": 2, "agent@v1": 1})
    report = json.loads(next(gateway.settings.run_dir.glob("gateway-*.json")).read_text())
    assert report["generation"] == 7
    assert abs(report["at"] - time.time()) < 5
    for thread in threads:
        thread.join()
    until(lambda: in_flight(gateway) == {})


def in_flight(gateway: Running) -> dict[str, int]:
    (path,) = gateway.settings.run_dir.glob("gateway-*.json")
    counts: dict[str, int] = json.loads(path.read_text())["in_flight"]
    return counts


def test_a_request_keeps_its_version_while_the_table_changes(gateway: Running) -> None:
    gateway.engine.replies = ["slow"]
    gateway.engine.token_delay = 0.1
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(gateway.chat(stream=True)))
    thread.start()
    until(lambda: gateway.engine.requests)
    write_table(gateway.settings, (), {})
    thread.join()
    assert answers[0].headers["x-burnish-version"] == "agent@v2"
    assert '"system_fingerprint":"agent@v2"' in answers[0].text
    assert "[DONE]" in answers[0].text


def test_a_full_disk_does_not_stop_serving(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.segments.file.SegmentWriter._write", lambda self, frame, length: False)
    assert gateway.chat().json()["choices"][0]["message"]["content"] == "hello"
    assert gateway.chat(stream=True).status_code == 200
    with gateway.client() as client:
        assert client.post("/v1/feedback", json={"target": "x", "rating": "up"}).status_code == 503
        assert "3 records lost" in client.get("/readyz").json()["warnings"][0]


RUN = "from burnish.config import load; from burnish.server.gateway.process import run; run(load())"


def start_process(settings: Settings) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", RUN], env={**os.environ, **to_environment(settings)})
    try:
        until(lambda: is_up(settings) or process.poll() is not None, 120)
        assert process.poll() is None
    except AssertionError:
        process.kill()
        process.wait()
        raise
    return process


def is_up(settings: Settings) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{settings.gateway.port}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def settings_for(folder: Path, engine: StubEngine) -> Settings:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = Settings(state_dir=folder, gateway=Gateway(port=port))
    write_table(settings, (engine.url,), make_keys()[1])
    return settings


class Load:
    """Clients that stream one reply after another and remember the ids of replies with an end."""

    def __init__(self, url: str, n_clients: int) -> None:
        self._url = url
        self.ended: set[str] = set()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._talk) for _ in range(n_clients)]
        for thread in self._threads:
            thread.start()

    def _talk(self) -> None:
        body = {"model": "agent", "messages": HELLO, "stream": True}
        with httpx.Client(timeout=10) as client:
            while not self._stop.is_set():
                try:
                    with client.stream("POST", f"{self._url}/v1/chat/completions", json=body) as response:
                        for line in response.iter_lines():
                            if '"finish_reason":"stop"' in line:
                                self.ended.add(json.loads(line[6:])["id"])
                except httpx.TransportError:
                    return

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)


def test_a_gateway_killed_under_load_loses_no_reply_whose_end_was_seen(tmp_path: Path, engine: StubEngine) -> None:
    engine.replies = lambda body, choice: "word " * 4
    engine.token_delay = 0.005
    settings = settings_for(tmp_path, engine)
    process = start_process(settings)
    load = Load(f"http://127.0.0.1:{settings.gateway.port}", 24)
    try:
        until(lambda: len(load.ended) >= 60, 30)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        load.stop()
    recorded = {row.interaction_id for row in records(settings.segments_dir) if not row.is_aborted}
    assert len(load.ended) >= 60
    assert load.ended <= recorded


def test_a_gateway_told_to_stop_finishes_its_streams(tmp_path: Path, engine: StubEngine) -> None:
    engine.token_delay = 0.1
    settings = settings_for(tmp_path, engine)
    process = start_process(settings)
    url = f"http://127.0.0.1:{settings.gateway.port}/v1/chat/completions"
    with httpx.stream("POST", url, json={"model": "agent", "messages": HELLO, "stream": True}) as response:
        process.send_signal(signal.SIGTERM)
        text = response.read().decode()
    assert "[DONE]" in text
    assert process.wait(10) == 0
    assert [row.is_aborted for row in records(settings.segments_dir)] == [False]
    assert list(settings.run_dir.glob("gateway-*.json")) == []
    assert list(settings.segments_dir.glob(".reserve-*")) == []


def test_an_idle_connection_is_left_to_the_client_to_close(tmp_path: Path, engine: StubEngine) -> None:
    """Clients drop idle connections after about 5 s.

    A server that did the same could drop their next request half-way.
    """
    settings = settings_for(tmp_path, engine)
    process = start_process(settings)
    try:
        connection = http.client.HTTPConnection(settings.gateway.host, settings.gateway.port)
        connection.connect()
        used = connection.sock
        for pause in (0.0, 7.0):
            time.sleep(pause)
            connection.request("GET", "/healthz")
            assert connection.getresponse().read() == b'{"status":"ok"}'
            assert connection.sock is used
        connection.close()
    finally:
        process.terminate()
        process.wait()


def test_the_table_may_be_missing(tmp_path: Path, engine: StubEngine) -> None:
    with serve(tmp_path, engine) as gateway:
        (gateway.settings.run_dir / "routes.json").unlink()
        assert gateway.chat().status_code == 404
        assert gateway.chat(model=Routes().base_name).status_code == 503
