"""The short way of server/gateway/http/protocol.py answers byte for byte like uvicorn, over raw sockets."""

import asyncio
import logging
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from burnish.server.gateway.http.protocol import Cycle, Protocol

KEEP_ALIVE = 1
IS_FULL, HAS_ROOM = threading.Event(), threading.Event()


class Served(Protocol):
    """The same application stands behind both: `/short` takes our way, `/other` uvicorn's."""

    short_ways = frozenset({b"/short"})


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Repeats its request. The header `x-want` selects other answers."""
    want = dict(scope["headers"]).get(b"x-want", b"")
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        if not message["more_body"]:
            break
    is_short = isinstance(getattr(send, "__self__", None), Cycle)
    text = b"%b %d %b" % (scope["method"].encode(), len(body), body[:5])
    headers = [(b"Content-Length", str(len(text)).encode()), (b"x-short", b"1" if is_short else b"0")]
    if want == b"stream":
        headers = headers[1:]
    elif want == b"injection":
        headers.append((b"x-name", b"a\r\nx-evil: 1"))
    elif want == b"bad-name":
        headers.append((b"x name", b"a"))
    elif want == b"close":
        headers.append((b"Connection", b"close"))
    elif want == b"flood":
        return await flood(send)
    elif want == b"crash":
        raise ValueError("before the head")
    elif want == b"silent":
        return
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if want == b"unfinished":
        return
    if want == b"crash-late":
        raise ValueError("behind the head")
    if want == b"stream":
        for part in (b"one", b"", b"two" * 1000):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        text = b""
    elif want == b"too-long":
        text += b"!"
    elif want == b"too-short":
        text = text[:-1]
    await send({"type": "http.response.body", "body": text})


async def flood(send: Send) -> None:
    """Streams until the connection takes no more, and then sends one piece more."""
    cycle = getattr(send, "__self__", None)
    assert isinstance(cycle, Cycle)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    piece = {"type": "http.response.body", "body": b"x" * 65536, "more_body": True}
    while not cycle.flow.write_paused:
        await send(piece)
    IS_FULL.set()
    await send(piece)
    HAS_ROOM.set()
    await send({"type": "http.response.body", "body": b""})


@contextmanager
def serving() -> Iterator[tuple[str, int]]:
    config = uvicorn.Config(
        app, port=0, loop="uvloop", http=Served, ws="none", lifespan="off", log_config=None, date_header=False
    )
    config.timeout_keep_alive = KEEP_ALIVE
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        threading.Event().wait(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()
    finally:
        server.should_exit = True
        thread.join(20)
        assert not server.server_state.tasks
        assert not server.server_state.connections


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # applications crash on purpose here
    with serving() as found:
        yield found


def told(address: tuple[str, int], *parts: bytes) -> bytes:
    """The complete answer to `parts`, sent one after the other, until the server closes the connection."""
    with socket.create_connection(address, timeout=20) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            line.sendall(part)
            threading.Event().wait(0.01)  # so that they arrive separately
        found = b""
        while more := line.recv(65536):
            found += more
    return found


def post(path: bytes, body: bytes = b"hello", extra: bytes = b"connection: close\r\n") -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n%b\r\n%b" % (path, len(body), extra, body)


SHORT, OTHER = b"/short", b"/other"
CLOSE = b"connection: close\r\n"
CHUNKED = b"POST /short HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n" + CLOSE + b"\r\n"
SCRIPTS: dict[str, list[bytes]] = {
    "plain": [post(SHORT)],
    "no body": [post(SHORT, b"")],
    "large body": [post(SHORT, b"x" * 3_000_000)],
    "head in pieces": [post(SHORT)[:9], post(SHORT)[9:30], post(SHORT)[30:]],
    "path in pieces": [post(SHORT)[:7], post(SHORT)[7:]],
    "body in pieces": [post(SHORT, b"x" * 100)[:-50], post(SHORT, b"x" * 100)[-50:]],
    "chunked": [CHUNKED + b"3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n"],
    "chunked, badly": [CHUNKED + b"zz\r\nabc\r\n"],
    "both lengths": [post(SHORT, extra=CLOSE + b"transfer-encoding: chunked\r\n")],
    "two lengths": [post(SHORT, extra=CLOSE + b"content-length: 3\r\n")],
    "not a length": [b"POST /short HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n"],
    "no HTTP": [b"hello there\r\n\r\n"],
    "a bare line feed": [b"POST /short HTTP/1.1\r\nhost: a\nx-evil: 1\r\n\r\n"],
    "HTTP/1.0": [post(SHORT).replace(b"HTTP/1.1", b"HTTP/1.0")],
    "HTTP/1.0, kept": [post(SHORT, extra=b"connection: keep-alive\r\n").replace(b"HTTP/1.1", b"HTTP/1.0")],
    "HEAD": [post(SHORT, b"").replace(b"POST", b"HEAD")],
    "OPTIONS": [post(SHORT, b"").replace(b"POST", b"OPTIONS")],
    "GET": [post(SHORT, b"").replace(b"POST", b"GET")],
    "expecting": [post(SHORT, b"", CLOSE + b"expect: 100-continue\r\n").replace(b"length: 0", b"length: 5"), b"hello"],
    "an upgrade": [post(SHORT, extra=b"connection: close, upgrade\r\nupgrade: h2c\r\n")],
    "stream": [post(SHORT, extra=CLOSE + b"x-want: stream\r\n")],
    "pipelined": [post(SHORT, b"1", b"") + post(SHORT, b"22", b"x-want: stream\r\n") + post(SHORT, b"333")],
    "pipelined with another": [post(SHORT, b"1", b"") + post(OTHER, b"22", b"") + post(SHORT, b"333")],
    "behind another": [post(OTHER, b"1", b"") + post(SHORT, b"22", b"") + post(OTHER, b"333")],
    "one after the other": [post(SHORT, b"1", b""), post(SHORT, b"22")],
    "left idle": [post(SHORT, b"1", b"")],
    "after the end": [post(SHORT) + b"garbage"],
    "closed by the answer": [post(SHORT, extra=b"x-want: close\r\n")],
    "crash": [post(SHORT, extra=CLOSE + b"x-want: crash\r\n")],
    "no answer": [post(SHORT, extra=CLOSE + b"x-want: silent\r\n")],
    "injection": [post(SHORT, extra=CLOSE + b"x-want: injection\r\n")],
    "bad name": [post(SHORT, extra=CLOSE + b"x-want: bad-name\r\n")],
}
NOT_SHORT = {"HTTP/1.0", "HTTP/1.0, kept", "HEAD", "OPTIONS", "GET", "expecting", "an upgrade"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_both_ways_answer_alike(address: tuple[str, int], name: str) -> None:
    ours = told(address, *SCRIPTS[name])
    theirs = told(address, *_other_way(SCRIPTS[name]))
    assert _without_way(ours) == _without_way(theirs)
    assert b"x-evil" not in ours
    if b"200 OK" in ours:
        assert (b"x-short: 1" in ours) == (name not in NOT_SHORT)


@pytest.mark.parametrize("want", ["crash-late", "unfinished", "too-long", "too-short"])
def test_half_an_answer_is_never_taken_for_a_whole_one(address: tuple[str, int], want: str) -> None:
    found = told(address, post(b"/short", extra=b"x-want: %b\r\n" % want.encode()))
    head, _, body = found.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    assert length is None or len(body) < int(length[1])


def test_a_client_that_does_not_read_holds_its_answer_up(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=20) as line:
        line.sendall(post(SHORT, extra=b"x-want: flood\r\n"))
        assert IS_FULL.wait(20)
        threading.Event().wait(0.05)
        assert not HAS_ROOM.is_set()
        found = b""
        while not found.endswith(b"\r\n0\r\n\r\n"):
            found = found[-7:] + line.recv(1 << 20)
        assert HAS_ROOM.is_set()


def test_a_client_that_leaves_ends_its_request(address: tuple[str, int]) -> None:
    """At its end `serving` asserts that no task and no connection is left."""
    with serving() as other:
        for sent in (post(b"/short")[:-2], post(b"/short", extra=b"x-want: stream\r\n")):
            with socket.create_connection(other, timeout=20) as line:
                line.sendall(sent)
        assert b"200 OK" in told(other, post(b"/short"))


def _other_way(parts: list[bytes]) -> list[bytes]:
    """The same requests, cut at the same places, for the path that takes uvicorn's way."""
    rest = b"".join(parts).replace(SHORT, OTHER)
    return [rest[sum(map(len, parts[:i])) :][: len(part)] for i, part in enumerate(parts)]


def _without_way(answer: bytes) -> bytes:
    return re.sub(rb"x-short: [01]\r\n", b"", answer)
