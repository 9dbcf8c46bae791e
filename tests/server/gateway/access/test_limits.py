"""Limits of keys: 429 with a time to come back, one allowance for all processes, and a dead process's share freed."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from gateways import HELLO, Running, write_table

from burnish.errors import Overloaded, RateLimited
from burnish.keys import Scope, mint
from burnish.server.gateway.access import limits as module
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.access.limits import Limits

CHAT = "/v1/chat/completions"


def caller(**limits: int) -> Caller:
    return Caller("sk-burnish-abc123", "default", frozenset({Scope.INFERENCE}), **limits)


def add_key(gateway: Running, name: str, **limits: int) -> None:
    secret, key = mint([Scope.INFERENCE], **limits)
    gateway.secrets[name] = secret
    write_table(gateway.settings, (gateway.engine.url,), {key.digest: key})


def test_a_minutes_share_may_be_used_at_once_and_then_grows_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(module.time, "time", lambda: now)
    limits = Limits(tmp_path, 0)
    who = caller(requests_per_minute=6)
    for _ in range(6):
        with limits.admit(who):
            pass
    with pytest.raises(RateLimited) as refused, limits.admit(who):
        pass
    assert refused.value.retry_after == pytest.approx(10.0)
    now = 1009.9
    with pytest.raises(RateLimited), limits.admit(who):
        pass
    now = 1010.1
    with limits.admit(who):
        pass
    with pytest.raises(RateLimited), limits.admit(who):
        pass
    limits.close()


def test_a_refused_request_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(module.time, "time", lambda: now)
    limits = Limits(tmp_path, 0)
    who = caller(requests_per_minute=1, max_concurrent=1)
    with limits.admit(who):
        for _ in range(50):
            with pytest.raises(RateLimited), limits.admit(who):
                pass
    for _ in range(50):
        with pytest.raises(RateLimited), limits.admit(who):
            pass
    now = 1060.1
    with limits.admit(who):
        pass
    limits.close()


def test_a_clock_that_was_an_hour_ahead_locks_no_key_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 4600.0
    monkeypatch.setattr(module.time, "time", lambda: now)
    limits, who = Limits(tmp_path, 0), caller(requests_per_minute=2)
    for _ in range(2):
        with limits.admit(who):
            pass
    now = 1000.0  # the clock is corrected
    for _ in range(2):
        with limits.admit(who):
            pass
    with pytest.raises(RateLimited), limits.admit(who):
        pass
    limits.close()


def test_processes_share_one_allowance(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from burnish.errors import RateLimited
from burnish.keys import Scope
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.access.limits import Limits
limits, n = Limits(Path({str(tmp_path)!r}), 0), 0
who = Caller("sk-burnish-abc123", "default", frozenset({{Scope.INFERENCE}}), requests_per_minute=40)
for _ in range(40):
    try:
        with limits.admit(who):
            n += 1
    except RateLimited:
        pass
print(n)
"""
    running = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    admitted = [int(process.communicate(timeout=60)[0]) for process in running]
    assert 40 <= sum(admitted) <= 45  # about a second's worth is earned meanwhile
    assert len([n for n in admitted if n < 40]) >= 2


def test_a_fast_key_seldom_touches_its_file_and_gets_no_more_than_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.time, "time", lambda: 1000.0)
    looks: list[int] = []
    pread = os.pread
    monkeypatch.setattr(module.os, "pread", lambda *args: looks.append(1) or pread(*args))
    who = caller(requests_per_minute=6000)
    processes = [Limits(tmp_path, 0), Limits(tmp_path, 0)]
    n = 0
    for at in range(6100):
        try:
            with processes[at % 2].admit(who):
                n += 1
        except RateLimited:
            pass
    assert n == 6000
    assert len(looks) < 6000 / 10 + 200
    for limits in processes:
        limits.close()


def test_what_a_killed_process_held_is_free_again(tmp_path: Path) -> None:
    program = f"""
import sys, time
from pathlib import Path
from burnish.keys import Scope
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.access.limits import Limits
who = Caller("sk-burnish-abc123", "default", frozenset({{Scope.INFERENCE}}), max_concurrent=2)
limits = Limits(Path({str(tmp_path)!r}), 0)
with limits.admit(who), limits.admit(who):
    print("held", flush=True)
    time.sleep(60)
"""
    holder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    limits, who = Limits(tmp_path, 0), caller(max_concurrent=2)
    with pytest.raises(RateLimited, match="2 requests under way"), limits.admit(who):
        pass
    holder.kill()
    holder.communicate()
    with limits.admit(who), limits.admit(who):
        pass
    limits.close()


def test_a_process_takes_on_no_more_than_it_may(tmp_path: Path) -> None:
    limits = Limits(tmp_path, 1)
    with limits.admit(caller()), pytest.raises(Overloaded), limits.admit(caller()):
        pass
    with limits.admit(caller()):
        pass


def test_the_rate_is_a_429_with_a_time_to_come_back(gateway: Running) -> None:
    add_key(gateway, "slow", requests_per_minute=2)
    assert [gateway.chat("slow").status_code for _ in range(2)] == [200, 200]
    refused = gateway.chat("slow")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert 25 <= int(refused.headers["retry-after"]) <= 30
    assert int(refused.headers["retry-after-ms"]) <= 30_000
    anthropic = {"model": "agent", "messages": HELLO, "max_tokens": 5}
    with gateway.client("slow") as client:
        answer = client.post("/v1/messages", json=anthropic)
    assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")
    assert len(gateway.interactions) == 2


def test_openais_client_comes_back_when_told(gateway: Running) -> None:
    add_key(gateway, "brisk", requests_per_minute=60)
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.secrets["brisk"], max_retries=3) as client:
        for _ in range(61):
            client.chat.completions.create(model="agent", messages=[{"role": "user", "content": "hi"}])
    assert len(gateway.interactions) == 61


def test_too_many_at_a_time_is_a_429_until_one_ends(gateway: Running) -> None:
    add_key(gateway, "narrow", max_concurrent=1)
    gateway.engine.token_delay = 0.1
    first = threading.Thread(target=gateway.chat, args=("narrow",))
    first.start()
    while not gateway.engine.requests:
        pass
    assert gateway.chat("narrow").status_code == 429
    first.join()
    assert gateway.chat("narrow").status_code == 200


def test_a_full_gateway_is_a_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gateways import serve

    from burnish.testing import StubEngine

    monkeypatch.setattr("burnish.server.gateway.state.Limits", lambda folder: Limits(folder, 1))
    with StubEngine(needs_loaded=False) as engine, serve(tmp_path, engine) as gateway:
        engine.token_delay = 0.1
        first = threading.Thread(target=gateway.chat)
        first.start()
        while not engine.requests:
            pass
        refused = gateway.chat()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        assert "retry-after" in refused.headers
        assert httpx.get(f"{gateway.url}/healthz").status_code == 200
        first.join()
        assert gateway.chat().status_code == 200


def test_a_process_keeps_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OPEN", 2)
    limits = Limits(tmp_path, 0)
    users = [replace(caller(requests_per_minute=2, max_concurrent=1), user=f"user {i}") for i in range(8)]
    before = len(os.listdir("/proc/self/fd"))
    with limits.admit(users[0]):
        for user in users[1:]:
            with limits.admit(user):
                assert len(os.listdir("/proc/self/fd")) <= before + 5  # two of each kind, and one to be closed
        with pytest.raises(RateLimited, match=r"user user 0 .* 1 requests under way"), limits.admit(users[0]):
            pass
    with limits.admit(users[0]):
        pass
    with pytest.raises(RateLimited, match="2 times a minute"), limits.admit(users[0]):
        pass
    limits.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_the_users_of_a_key_have_its_limits_together_and_each_a_part(tmp_path: Path) -> None:
    limits, key = Limits(tmp_path, 0), caller(requests_per_minute=5, max_concurrent=3)
    ann, bob, eve = (replace(key, user=user, is_token=True) for user in ("ann", "bob", "eve"))
    with limits.admit(ann), limits.admit(ann):
        with pytest.raises(RateLimited, match=r"user ann .* 2 requests under way"), limits.admit(ann):
            pass
        with limits.admit(bob), pytest.raises(RateLimited, match=r"key sk-burnish-abc123 .* 3 requests"):
            limits.admit(bob).__enter__()
    with limits.admit(ann):
        pass
    with pytest.raises(RateLimited, match=r"user ann .* 3 times a minute"), limits.admit(ann):
        pass
    with limits.admit(key):
        pass
    for who in (bob, eve, key):
        with pytest.raises(RateLimited, match="key sk-burnish-abc123 may ask 5 times a minute"), limits.admit(who):
            pass
    limits.close()


def test_what_the_key_refuses_costs_its_user_nothing(tmp_path: Path) -> None:
    limits, key = Limits(tmp_path, 0), caller(requests_per_minute=1)
    ann = replace(key, user="ann", is_token=True)
    with limits.admit(key):
        pass
    for _ in range(3):
        with pytest.raises(RateLimited, match=r"^key"), limits.admit(ann):
            pass
    limits.close()


def test_bodies_of_one_caller_and_of_all_have_bounds_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HELD", 100)
    monkeypatch.setattr(module, "MAX_HELD_EACH", 60)
    limits = Limits(tmp_path, 0)
    ann, bob = caller(), replace(caller(), key_id="sk-burnish-other")
    first, second = limits.admit(ann, parts(50, 20)), limits.admit(bob, parts(40))
    with first, limits.admit(ann), second:
        asyncio.run(first.receive())
        with pytest.raises(RateLimited, match="more than 60 bytes together"):
            asyncio.run(first.receive())
        with pytest.raises(Overloaded, match="more than 100 bytes together"):
            asyncio.run(second.receive())
        asyncio.run(limits.admit(bob, parts(40), is_reserved=True).receive())
    with (again := limits.admit(bob, parts(60))):
        asyncio.run(again.receive())


def parts(*sizes: int) -> Callable[[], Awaitable[Any]]:
    left = iter(sizes)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"x" * next(left)}

    return receive


@pytest.mark.parametrize(("path", "full"), [(CHAT, 503), ("/v1/messages", 529), ("/v1/feedback", 503)])
def test_slow_bodies_hold_a_bounded_amount(
    gateway: Running, monkeypatch: pytest.MonkeyPatch, path: str, full: int
) -> None:
    """What one caller sends piece by piece leaves room for others, and what all send is bounded."""
    monkeypatch.setattr(module, "MAX_HELD", 300_000)
    monkeypatch.setattr(module, "MAX_HELD_EACH", 200_000)
    taken: list[int] = []
    hold = module.Limits.hold
    monkeypatch.setattr(module.Limits, "hold", lambda self, who, n: taken.append(n) or hold(self, who, n))
    host, port = gateway.url.removeprefix("http://").split(":")
    with ExitStack() as held:
        for key, n_bytes in (("talker", 190_000), ("voter", 190_000)):
            line = held.enter_context(socket.create_connection((host, int(port)), timeout=10))
            head = f"authorization: Bearer {gateway.secrets[key]}\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n"
            target = CHAT if key == "talker" else "/v1/feedback"
            line.sendall(f"POST {target} HTTP/1.1\r\n{head}".encode() + b" " * n_bytes)
            if key == "voter":
                assert b" 503 " in line.recv(4096)
            while sum(taken) < n_bytes:
                time.sleep(0.01)
        body = {"model": "agent", "max_tokens": 5, "messages": HELLO, "x": "x" * 150_000}
        with gateway.client("talker") as client:
            assert client.post(path, json=body).status_code == 429
        with gateway.client("admin") as client:
            refused = client.post(path, json=body)
            assert (refused.status_code, "retry-after" in refused.headers) == (full, True)
            assert client.post(CHAT, json={"model": "agent", "messages": HELLO}).status_code == 200
    while gateway.chat("talker", x="x" * 150_000).status_code == 429:
        time.sleep(0.05)  # the client has left


def test_limit_files_are_private(tmp_path: Path) -> None:
    limits = Limits(tmp_path, 0)
    with limits.admit(caller(requests_per_minute=5, max_concurrent=5)):
        pass
    files = list((tmp_path / "limits").iterdir())
    assert len(files) == 2
    assert all(os.stat(file).st_mode & 0o777 == 0o600 for file in files)
