"""Attacks on the wire: sizes, smuggled requests, nesting, memory."""

import gzip
import json
import re
import time
from contextlib import ExitStack, suppress
from functools import partial

from benchmarks.security.attacks import add, attack
from benchmarks.security.attacks.stand import HELLO, Stand, connected

_MB = 2**20
_JSON = {"content-type": "application/json"}
_HOST = b"Host: localhost\r\n"
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")


def _is_taken(head: bytes, n_bytes: int, piece: bytes, stand: Stand) -> bool:
    return stand.taken(head, n_bytes, piece) > n_bytes // 2


_POST = b"POST /admin/agents HTTP/1.1\r\n" + _HOST
_CHAT = b"POST /v1/chat/completions HTTP/1.1\r\n" + _HOST
for _name, _head, _n, _piece in (
    ("a body of 64 MiB without a key", _POST + b"Content-Length: 67108864\r\n\r\n", 64 * _MB, b"x" * 65536),
    (
        "a body in pieces without a key",
        _POST + b"Transfer-Encoding: chunked\r\n\r\n",
        64 * _MB,
        b"10000\r\n" + b"x" * 65536 + b"\r\n",
    ),
    ("a body of 256 MiB to chat", _CHAT + b"Content-Length: 268435456\r\n\r\n", 128 * _MB, b"x" * 65536),
    ("a header of 32 MiB", b"GET /healthz HTTP/1.1\r\nx-long: ", 32 * _MB, b"x" * 65536),
    ("a hundred thousand headers", b"GET /healthz HTTP/1.1\r\n", 8 * _MB, b"x-many: 1\r\n" * 4096),
    ("an address of 32 MiB", b"GET /", 32 * _MB, b"x" * 65536),
    (
        "a chunk's endless extension",
        _CHAT + b"Transfer-Encoding: chunked\r\n\r\n5;",
        32 * _MB,
        b"x" * 65536,
    ),
):
    add(f"the gateway takes {_name}", partial(_is_taken, _head, _n, _piece))

_INNER = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
_SMUGGLED = {
    "two lengths": _CHAT + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(_INNER) + _INNER,
    "a length and chunks": _CHAT
    + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (len(_INNER) + 5)
    + _INNER,
    "an unknown coding": _CHAT + b"Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n" + _INNER,
    "a length with a sign": _CHAT + b"Content-Length: +0\r\n\r\n" + _INNER,
    "a chunk's size beyond all numbers": _CHAT
    + b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n0\r\n\r\n"
    + _INNER,
    "a folded header": _CHAT + b"Content-Length: 0\r\n Content-Length: 5\r\n\r\n" + _INNER,
    "a blank before the colon": _CHAT + b"Content-Length : 5\r\n\r\n" + _INNER,
}


def _is_smuggled(data: bytes, stand: Stand) -> bool:
    """True if the bytes behind a request whose length is in doubt are answered as a request."""
    return b"200" in _STATUS.findall(stand.raw(data))


for _name, _data in _SMUGGLED.items():
    add(f"a request is smuggled behind {_name}", partial(_is_smuggled, _data))


@attack("a body nested a hundred thousand deep breaks the gateway")
def _deep(stand: Stand) -> bool:
    answers = [
        stand.ask("POST", path, "admin", content=b'{"messages": ' + b"[" * 100_000, headers=_JSON)
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/feedback", "/admin/agents")
    ]
    return any(answer.status_code >= 500 for answer in answers)


@attack("a compressed body is unpacked")
def _packed(stand: Stand) -> bool:
    body = gzip.compress(json.dumps({"model": "agent", "messages": HELLO}).encode())
    encoded = {**_JSON, "content-encoding": "gzip"}
    return stand.ask("POST", "/v1/chat/completions", "talker", content=body, headers=encoded).is_success


@attack("tools' texts stay in memory")
def _tools(stand: Stand) -> bool:
    before = stand.memory()
    for number in range(24):
        text = f"{number} " + "x" * (2 * _MB)
        stand.chat(tools=[{"type": "function", "function": {"name": "f", "description": text, "parameters": {}}}])
    return stand.memory() - before > 36 * _MB


@attack("silent connections shut others out")
def _silent(stand: Stand) -> bool:
    import socket

    lines = [socket.create_connection(("127.0.0.1", stand.port), timeout=2.0) for _ in range(400)]
    try:
        return stand.ask("GET", "/healthz").status_code != 200
    finally:
        for line in lines:
            line.close()


@attack("a slow head keeps its connection for half a minute")
def _slow(stand: Stand) -> bool:
    import socket

    with socket.create_connection(("127.0.0.1", stand.port), timeout=1.0) as line:
        began = time.monotonic()
        line.sendall(b"GET /healthz HTTP/1.1\r\n")
        while time.monotonic() - began < 30.0:
            with suppress(TimeoutError):
                if line.recv(1024):
                    return False
                return False
            try:
                line.sendall(b"x: 1\r\n")
            except OSError:
                return False
        return True


@attack("one caller's unfinished bodies fill the memory")
def _unfinished(stand: Stand) -> bool:
    head = _CHAT + b"Authorization: Bearer " + stand.secrets["talker"].encode()
    head += b"\r\nContent-Length: %d\r\n\r\n" % (32 * _MB)
    before = stand.memory()
    with ExitStack() as held:
        for _ in range(20):
            line = held.enter_context(connected(stand.port, 5.0))
            with suppress(OSError):  # refused in the middle
                line.sendall(head + b" " * (31 * _MB))
        return stand.memory() - before > 480 * _MB
