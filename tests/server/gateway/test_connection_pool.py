"""Connections to the engine: reused, given up after errors, and never trusted beyond what HTTP guarantees."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from burnish.server.gateway.engines.connection import HIGH_WATER, ConnectionBroken
from burnish.server.gateway.engines.connection_pool import Pool

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve, **settings: float) -> AsyncIterator[tuple[Pool, str, list[int]]]:
    """A pool, a scripted server, and the client ports of its connections."""
    ports: list[int] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ports.append(writer.get_extra_info("peername")[1])
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    pool = Pool(**{"connect_timeout": 1.0, "read_timeout": 5.0, "keep_alive": 3.0} | settings)
    try:
        yield pool, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", ports
    finally:
        pool.close()
        server.close()


async def request_of(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return head, await reader.readexactly(length)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        _, body = await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


def says(answer: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(answer)
        await writer.drain()

    return serve


async def ask(pool: Pool, url: str, body: bytes = b"{}") -> bytes:
    response = await pool.request(url, "/x", b"a: b\r\n", body)
    try:
        return await response.read()
    finally:
        response.close()


async def test_a_connection_serves_many_requests_one_after_the_other() -> None:
    async with serving(echo) as (pool, url, ports):
        assert [await ask(pool, url, b"%d" % n * 50_000) for n in range(5)] == [b"%d" % n * 50_000 for n in range(5)]
        assert len(ports) == 1
        assert sorted(await asyncio.gather(*(ask(pool, url, b"%d" % n) for n in range(4)))) == [b"0", b"1", b"2", b"3"]
        assert len(ports) == 4


async def test_an_idle_connection_is_not_trusted_for_long() -> None:
    async with serving(echo, keep_alive=0.05) as (pool, url, ports):
        await ask(pool, url)
        await asyncio.sleep(0.1)
        assert await ask(pool, url, b"on") == b"on"
        assert len(ports) == 2


async def test_an_unread_answer_takes_its_connection_along() -> None:
    closed = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
        assert await reader.read() == b""
        closed.set()

    async with serving(stream) as (pool, url, _):
        response = await pool.request(url, "/x", b"", b"{}")
        assert await anext(response.pieces()) == b"hello"
        response.close()
        await asyncio.wait_for(closed.wait(), 2)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
    ],
)
async def test_half_an_answer_is_an_error(answer: bytes) -> None:
    async with serving(says(answer)) as (pool, url, _):
        with pytest.raises(ConnectionBroken):
            await ask(pool, url)


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    async with serving(says(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nall of it")) as (pool, url, ports):
        assert await ask(pool, url) == b"all of it"
        assert await ask(pool, url) == b"all of it"
        assert len(ports) == 2


async def test_silence_ends() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(silent, read_timeout=0.1) as (pool, url, _):
        with pytest.raises(ConnectionBroken, match="no byte"):
            await ask(pool, url)


async def test_time_in_the_pool_is_no_silence_and_a_later_silence_ends() -> None:
    async def first_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, body = await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await reader.read()

    async with serving(first_only, read_timeout=0.2) as (pool, url, ports):
        assert await ask(pool, url, b"on") == b"on"
        await asyncio.sleep(0.5)
        with pytest.raises(ConnectionBroken, match="no byte"):
            await ask(pool, url)
        assert len(ports) == 1


async def test_what_is_to_be_done_meanwhile_is_done_before_the_answer() -> None:
    async with serving(echo) as (pool, url, _):
        done: list[str] = []
        response = await pool.request(url, "/x", b"", b"on", lambda: done.append("meanwhile"))
        assert done == ["meanwhile"]
        assert await response.read() == b"on"


async def test_nobody_there_is_said_so_before_anything_was_sent() -> None:
    pool = Pool(connect_timeout=0.2, read_timeout=1, keep_alive=1)
    for url in ("http://127.0.0.1:1", "http://no.such.host.invalid:80"):
        with pytest.raises(ConnectionRefusedError):
            await ask(pool, url)


async def test_what_nobody_reads_is_not_received() -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(1000):
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await writer.drain()
            sent += 65536
        writer.write(b"0\r\n\r\n")

    async with serving(flood) as (pool, url, _):
        response = await pool.request(url, "/x", b"", b"{}")
        await asyncio.sleep(0.5)
        held = sent
        assert held < 1000 * 65536 / 2, "64 MB were taken in for a client that reads nothing"
        total = 0
        async for piece in response.pieces():
            assert len(piece) <= HIGH_WATER + 4 * 65536
            total += len(piece)
        assert total == 1000 * 65536
        response.close()


async def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    async def chatter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
        await writer.drain()
        await reader.read()

    async with serving(chatter) as (pool, url, ports):
        assert await ask(pool, url) == b"ok"
        await asyncio.sleep(0.3)
        assert await ask(pool, url) == b"ok"
        assert len(ports) == 2
