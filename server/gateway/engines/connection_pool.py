"""Connections to the engines, kept alive between requests and shared by all of them."""

import asyncio
import ssl
from collections.abc import Callable
from functools import lru_cache
from urllib.parse import urlsplit

from burnish.server.gateway.engines.connection import Connection

Address = tuple[str, int, bool]


class Pool:
    """Gives out connections and takes them back. Create it inside the event loop."""

    def __init__(self, *, connect_timeout: float, read_timeout: float, keep_alive: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._keep_alive = keep_alive
        self._idle: dict[Address, list[Connection]] = {}

    async def request(
        self,
        url: str,
        path: str,
        headers: bytes,
        body: bytes | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> "Response":
        """Ask `url` for `path`: POST with a body, GET without. `headers` are complete lines. `meanwhile` is called once
        the request is sent.

        Raises ConnectionRefusedError (or another OSError) if no connection can be made, TimeoutError if that takes too
        long, ConnectionBroken if it ends before the answer's head.
        """
        address, authority = split(url)
        connection = self._rested(address) or await self._connect(address)
        method = b"GET" if body is None else b"POST"
        body = body or b""
        head = b"%b %b HTTP/1.1\r\nhost: %b\r\ncontent-length: %d\r\n%b\r\n" % (
            method,
            path.encode(),
            authority,
            len(body),
            headers,
        )
        try:
            await connection.ask(head, body, meanwhile)
        except BaseException:
            connection.close()
            raise
        return Response(self, address, connection)

    def take_back(self, address: Address, connection: Connection) -> None:
        """Keep a connection for the next request if it can serve one, else close it."""
        if connection.is_reusable:
            connection.rest()
            self._idle.setdefault(address, []).append(connection)
        else:
            connection.close()

    def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    def _rested(self, address: Address) -> Connection | None:
        """The connection that was used last. So spare connections grow old and are closed."""
        idle = self._idle.get(address)
        if not idle:
            return None
        horizon = self._loop.time() - self._keep_alive
        while idle and idle[0].idle_since < horizon:
            idle.pop(0).close()
        while idle:
            connection = idle.pop()
            if connection.is_reusable:
                return connection
            connection.close()
        return None

    async def _connect(self, address: Address) -> Connection:
        host, port, is_secure = address
        context = ssl.create_default_context() if is_secure else None
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, made = await self._loop.create_connection(
                    lambda: Connection(self._read_timeout), host, port, ssl=context
                )
        except TimeoutError as error:
            raise ConnectionRefusedError(f"no connection within {self._connect_timeout:g} s") from error
        except ConnectionRefusedError:
            raise
        except OSError as error:  # an unknown name or a host without a route: nothing was sent
            raise ConnectionRefusedError(str(error)) from error
        return made


class Response:
    """An answer with its head read. Close it in the end, read or not: that frees the engine from an unread stream."""

    __slots__ = ("_address", "_connection", "_pool", "pieces", "read", "status")

    def __init__(self, pool: Pool, address: Address, connection: Connection) -> None:
        self._pool = pool
        self._address = address
        self._connection = connection
        self.status = connection.status
        self.read = connection.read
        self.pieces = connection.pieces

    def close(self) -> None:
        self._pool.take_back(self._address, self._connection)


@lru_cache(maxsize=256)
def split(url: str) -> tuple[Address, bytes]:
    """Address and Host header of a base URL."""
    parts = urlsplit(url)
    is_secure = parts.scheme == "https"
    port = parts.port or (443 if is_secure else 80)
    return (parts.hostname or "", port, is_secure), parts.netloc.rpartition("@")[2].encode()
