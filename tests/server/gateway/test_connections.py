"""What a connection may cost: long or slow heads, slow bodies and too many connections end without harm to others."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest
from gateways import Running

from burnish.server import bounds
from burnish.server.gateway import process
from burnish.server.gateway.http.coalesce import CoalescedSend

POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
BODY = b'{"model": "agent", "messages": [{"role": "user", "content": "hi"}]}'


@contextmanager
def line(gateway: Running) -> Iterator[socket.socket]:
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as opened:
        yield opened


def rest(opened: socket.socket) -> bytes:
    """Everything until the gateway closes."""
    parts = []
    try:
        while part := opened.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def sends(opened: socket.socket, pieces: int, piece: bytes) -> int:
    """The number of pieces that went out before the gateway closed."""
    for sent in range(pieces):
        try:
            opened.sendall(piece)
        except OSError:
            return sent
    return pieces


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/healthz"])
@pytest.mark.parametrize("start", [b"x-long: ", b""], ids=["one long header", "many headers"])
def test_a_long_head_is_not_kept(shared: Running, path: bytes, start: bytes) -> None:
    with line(shared) as opened:
        opened.sendall(b"POST " + path + b" HTTP/1.1\r\nhost: localhost\r\n" + start)
        piece = b"a" * 2**20 if start else b"x-a: b\r\n" * 2**17
        assert sends(opened, 60, piece) < 30


def test_a_long_path_is_not_kept(shared: Running) -> None:
    with line(shared) as opened:
        opened.sendall(b"GET /")
        assert sends(opened, 60, b"a" * 2**20) < 30


def test_trailers_and_chunk_extensions_are_not_kept(shared: Running) -> None:
    for start in (b"1\r\na\r\n0\r\nx-trailer: ", b"1;x="):
        with line(shared) as opened:
            opened.sendall(POST + b"transfer-encoding: chunked\r\n\r\n" + start)
            assert sends(opened, 60, b"a" * 2**20) < 30


@pytest.mark.parametrize("size", [70_000, 200_000])
def test_a_head_that_comes_at_once_has_the_same_limit(shared: Running, size: int) -> None:
    n_before = len(shared.engine.requests)
    with line(shared) as opened:
        opened.sendall(POST + b"x-long: " + b"a" * size + b"\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY)
        assert b"200 OK" not in rest(opened)  # the 431 is lost if the system resets the connection first
    assert len(shared.engine.requests) == n_before
    with httpx.Client(base_url=shared.url) as client:
        assert client.get("/healthz", headers={"x-long": "a" * size}).status_code == 431


def test_a_head_below_the_limit_and_a_long_body_pass(shared: Running) -> None:
    with shared.client() as client:
        for n in range(3):  # on one connection
            said = [{"role": "user", "content": "x" * 300_000}]
            body = {"model": "agent", "messages": said}
            answer = client.post("/v1/chat/completions", json=body, headers={"x-long": "a" * 60_000})
            assert answer.status_code == 200, n


def test_small_chunks_pass(shared: Running) -> None:
    with shared.client() as client:
        text = b'{"model": "agent", "messages": [{"role": "user", "content": "' + b"x" * 300_000 + b'"}]}'
        pieces = (text[at : at + 10] for at in range(0, len(text), 10))
        assert client.post("/v1/chat/completions", content=pieces).status_code == 200


@pytest.mark.parametrize(
    ("start", "answer"),
    [
        (b"", b""),
        (b"POST /v1/chat/comp", b"HTTP/1.1 408 "),
        (POST + b"content-length: 100\r\n\r\n{", b"HTTP/1.1 408 "),
        (b"POST /v1/feedback HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{", b"HTTP/1.1 408 "),
    ],
    ids=["silent", "head", "body", "feedback"],
)
@pytest.mark.parametrize("is_trickling", [False, True])
def test_who_takes_too_long_is_cut_off(
    gateway: Running, monkeypatch: pytest.MonkeyPatch, start: bytes, answer: bytes, is_trickling: bool
) -> None:
    monkeypatch.setattr(bounds, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(bounds, "BODY_SECONDS", 0.5)
    begun = time.monotonic()
    with line(gateway) as opened:
        opened.sendall(start)
        if is_trickling and start:
            opened.settimeout(0.1)
            got = b""
            while not got and time.monotonic() < begun + 5:
                try:
                    got = opened.recv(65536)
                    break
                except TimeoutError:
                    opened.sendall(b"a")
        else:
            got = rest(opened)
    assert got.startswith(answer)
    assert time.monotonic() < begun + 4
    assert gateway.engine.requests == []


def test_a_slow_body_that_moves_and_a_slow_reply_are_left_alone(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(bounds, "BODY_SECONDS", 0.2)
    monkeypatch.setattr(bounds, "MIN_BODY", 10)
    gateway.engine.token_delay = 0.2
    with line(gateway) as opened:
        opened.sendall(POST + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(BODY))
        for at in range(0, len(BODY), 10):
            time.sleep(0.08)
            opened.sendall(BODY[at : at + 10])
        assert rest(opened).startswith(b"HTTP/1.1 200 ")


def test_silent_connections_shut_nobody_out(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.server.gateway.process.GatewayProtocol.max_connections", 20)
    with ExitStack() as held:
        silent = [held.enter_context(line(gateway)) for _ in range(60)]
        assert httpx.get(f"{gateway.url}/healthz").status_code == 200
        assert gateway.chat().status_code == 200
        closed = 0
        for opened in silent:
            opened.settimeout(0.05)
            with suppress(TimeoutError):
                closed += opened.recv(1) == b""
        assert 38 <= closed <= 45


def test_a_process_full_of_running_requests_says_so(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.server.gateway.process.GatewayProtocol.max_connections", 3)
    gateway.engine.token_delay = 0.3
    with ExitStack() as held:
        running = [held.enter_context(line(gateway)) for _ in range(3)]
        for opened in running:
            opened.sendall(POST + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY)
        while len(gateway.engine.requests) < 3:
            pass
        assert httpx.get(f"{gateway.url}/healthz").status_code == 503
        assert all(rest(opened).startswith(b"HTTP/1.1 200 ") for opened in running)


def test_connections_leave_files_for_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"now": (1024, 4096)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.update(now=wanted))
    assert process.max_connections() == (4096 - process.FILES) // 2
    assert limits["now"] == (4096, 4096)
    limits["now"] = (1024, resource.RLIM_INFINITY)
    assert process.max_connections() == process.MAX_CONNECTIONS
    limits["now"] = (64, 64)
    assert process.max_connections() == 1


class Gone:
    """A transport whose client has gone, as uvloop's is then."""

    def is_closing(self) -> bool:
        return True

    def write(self, data: bytes) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")


async def test_an_answer_to_a_client_that_has_gone_is_dropped() -> None:
    """Each would have counted as a defect, and its traceback takes far more time than the answer."""
    send = CoalescedSend(Gone())  # type: ignore[arg-type]
    send.write(b"HTTP/1.1 200 OK\r\n\r\n")
    send.write(b"body")
    send.write(b"more")
    send.write(b"HTTP/1.1 200 OK\r\n\r\n")
    send.write_now(b"body")
