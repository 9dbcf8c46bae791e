"""Malformed, oversized, slow and pipelined raw HTTP, with every kind of key: what answers 5xx or hangs, what it costs.

A payload is a sound request to a random route, and then damaged in one way or more. The client ends its side after it.
So a connection that says nothing for `PATIENCE` seconds hangs.
"""

import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.bars import Tell
from benchmarks.security.attacks.stand import Stand, standing
from benchmarks.security.requests import REQUESTS, Things, path_of
from burnish.server.ui import pages

PATIENCE = 25.0
"""Seconds. A body that stops in the middle may take 20."""
N_AT_ONCE = 16
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_LEFT_OUT = ("import", "/export", "step")
"""Parts of routes that start work of their own."""
ROUTES = [name for name in REQUESTS if not any(part in name for part in _LEFT_OUT)]
PAGES = ["GET /", "GET /login", "POST /login", "POST /logout", "GET /static/ui.css", "GET /healthz", "GET /nowhere"]
PAGES += [f"{method} {re.sub('{.*?}', '1', path)}" for path, methods, _ in pages.PAGES for method in methods]
"""The routes of the pages for people."""


def measure(folder: Path, tell: Tell, n: int = 20_000) -> dict[str, float]:
    """The benchmark's figures. `n` payloads are sent, one in ten of them to the pages for people, the others to the
    gateway. What answers 5xx is told.
    """
    counts: Counter[int] = Counter()
    began = time.monotonic()
    gained = 0
    with standing(folder, has_pages=True) as stand:
        for part, share in (("gateway", 0.9), ("ui", 0.1)):
            asyncio.run(send(stand, random.Random("warm"), 500, part))
            before = stand.memory(part)
            found, bad = asyncio.run(send(stand, random.Random(f"malformed {part}"), round(share * n), part))
            counts += found
            gained = max(gained, stand.memory(part) - before)
            for data in bad[:20]:
                tell(f"{part}: 5xx or silence after {data[:200]!r}")
        is_alive = stand.chat().status_code == 200
    return {
        "malformed": float(n),
        "malformed_5xx": float(sum(k for status, k in counts.items() if 500 <= status < 600)),
        "malformed_hung": float(counts[0] + (not is_alive)),
        "malformed_2xx": float(sum(k for status, k in counts.items() if 200 <= status < 300)),
        "malformed_memory_mib": gained / 2**20,
        "malformed_seconds": round(time.monotonic() - began, 1),
    }


async def send(stand: Stand, rng: random.Random, n: int, part: str = "gateway") -> tuple[Counter[int], list[bytes]]:
    """Answers by status, 0 for silence, and the payloads behind the bad ones."""
    port, routes = (stand.port, ROUTES) if part == "gateway" else (stand.pages_port, PAGES)
    counts: Counter[int] = Counter()
    bad: list[bytes] = []
    payloads = ((payload(rng, stand.secrets, routes), rng.random() < 0.02) for _ in range(n))

    async def work() -> None:
        for data, is_slow in payloads:
            found = await _ask(port, data, is_slow)
            counts.update(found)
            if any(status == 0 or status >= 500 for status in found):
                bad.append(data)

    await asyncio.gather(*(work() for _ in range(N_AT_ONCE)))
    return counts, bad


async def _ask(port: int, data: bytes, is_slow: bool) -> list[int]:
    """The statuses of the answers. A closed connection without an answer has none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        with suppress(OSError):  # refused in the middle: the answer may be there all the same
            if is_slow:
                for at in range(0, min(len(data), 400), 40):
                    writer.write(data[at : at + 40])
                    await writer.drain()
                    await asyncio.sleep(0.005)
                data = data[400:]
            writer.write(data)
            writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            with suppress(OSError):
                answer = await reader.read(-1)
    except TimeoutError:
        return [0]
    finally:
        writer.close()
    return [int(status) for status in _STATUS.findall(answer)]


def payload(rng: random.Random, secrets: dict[str, str], routes: Sequence[str]) -> bytes:
    """One payload: a request to one of the routes, or a few in a row, damaged."""
    (n,) = rng.choices((1, 2, 20), (0.9, 0.08, 0.02))
    data = b"".join(_request(rng, secrets, routes) for _ in range(n))
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        data = rng.choice(_DAMAGES)(rng, data)
    return data


def _request(rng: random.Random, secrets: dict[str, str], routes: Sequence[str]) -> bytes:
    name = rng.choice(routes)
    method, _, path = name.partition(" ")
    path = path_of(name, Things(_text(rng, 30), _text(rng, 30))) if name in REQUESTS else path
    path = "".join(letter if 33 <= ord(letter) < 127 else f"%{ord(letter) % 256:02x}" for letter in path)
    body = _body(rng)
    key = rng.choice([*secrets.values(), "sk-burnish-unknown", ""])
    host = "localhost" if rng.random() < 0.9 else rng.choice(_ADDRESSES)
    kind = rng.choice(("application/json", "application/x-www-form-urlencoded", _ascii(rng)))
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\n"
    head += f"Authorization: Bearer {key}\r\n" if key else ""
    for name in ("Origin", "Referer", "Cookie", "Accept"):
        if rng.random() < 0.1:
            head += f"{name}: {rng.choice((*_ADDRESSES, 'text/html', f'burnish_ui_80={_ascii(rng)}', _ascii(rng)))}\r\n"
    if rng.random() < 0.2:
        sized = b"".join(
            b"%x\r\n%s\r\n" % (len(body[at : at + 50]), body[at : at + 50]) for at in range(0, len(body), 50)
        )
        return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode("latin-1") + sized + b"0\r\n\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body


_WORDS = (
    "model",
    "messages",
    "role",
    "content",
    "agent",
    "user",
    "target",
    "rating",
    "input",
    "settings",
    "stream",
    "n",
)


_ADDRESSES = (
    *("http://localhost", "http://[", "http://[::1", "http://localhost:99999", "http://localhost:x", "//", "null"),
    *("localhost:99999", "localhost:x", "[", "[::1]", "[v1.x]", "http://evil.example/a?b#c", "http://\xe9", "%00", ""),
)


def _ascii(rng: random.Random) -> str:
    return "".join(rng.choice("abz01/.:;=[]%@?#\"' ,_-") for _ in range(rng.randrange(20)))


def _body(rng: random.Random) -> bytes:
    fields = {
        "model": rng.choice(("agent", "agent@v0", "second", _tree(rng, 1))),
        "messages": rng.choice(([{"role": "user", "content": _text(rng, 40)}], _tree(rng, 3))),
        "max_tokens": rng.choice((5, 0, -1, 10**30, 1e300, "x")),
        "stream": rng.random() < 0.2,
    }
    tree = rng.choice((fields, fields | {rng.choice(_WORDS): _tree(rng, 2)}, _tree(rng, 4)))
    return json.dumps(tree).encode()


def _tree(rng: random.Random, depth: int) -> object:
    kind = rng.randrange(8) if depth else rng.randrange(6)
    if kind < 6:
        return (None, True, rng.randrange(-(10**20), 10**20), rng.random() * 1e308, _text(rng, 20), "")[kind]
    if kind == 6:
        return [_tree(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice((*_WORDS, _text(rng, 5))): _tree(rng, depth - 1) for _ in range(rng.randrange(4))}


def _text(rng: random.Random, most: int) -> str:
    return "".join(rng.choice("ab/.%\x00\n\"'\\é語\ud7ff \U0001f4a9") for _ in range(rng.randrange(1, most)))


def _flipped(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data)) if data else 0
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _put(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(_PIECES) + data[at:]


def _doubled(rng: random.Random, data: bytes) -> bytes:
    at, end = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    return data[:end] + data[at:end] * rng.choice((1, 3, 50)) + data[end:]


def _oversized(rng: random.Random, data: bytes) -> bytes:
    at = data.find(b"\r\n") + 2
    return data[:at] + b"x-long: " + b"y" * rng.choice((1000, 70_000, 200_000)) + b"\r\n" + data[at:]


_PIECES = (
    *(
        b"\r\n",
        b"\n",
        b"\r\n\r\n",
        b"\x00",
        b"\xff\xfe",
        b" ",
        b"\t",
        b":",
        b"{",
        b"[" * 5000,
        b'"',
        b"%00",
        b"%ff",
        b"../",
    ),
    *(
        b"Content-Length: 5\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Connection: x\r\n",
    ),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Expect: 100-continue\r\n"),
    *(
        b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
        b"Host: evil.example\r\n",
        b"ffffffffffffffff\r\n",
        b"HTTP/1.0",
    ),
    *(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\n\r\n",
        b"Origin: null\r\n",
        b"Content-Encoding: gzip\r\n",
    ),
)
_DAMAGES = (_flipped, _flipped, _cut, _put, _put, _doubled, _oversized)
