"""Notices that the client of a long request left."""

import asyncio
from types import TracebackType

from starlette.types import Receive

from burnish.server.gateway.http.asgi import ClientGone

PATIENCE = 0.05


class DisconnectWatcher:
    """Watches the clients of long requests. Create it inside the event loop.

    Most replies end within `PATIENCE` seconds, and a timer and a task for each would be expensive. So one timer serves
    all requests. A request that the timer meets twice gets a task that waits for its client to leave.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._young: set[ClientWatch] = set()
        self._older: set[ClientWatch] = set()
        self._is_ticking = False

    def watch(self, receive: Receive) -> "ClientWatch":
        """Watch for the length of a `with` block."""
        return ClientWatch(self, receive)

    def add(self, watch: "ClientWatch") -> None:
        self._young.add(watch)
        if not self._is_ticking:
            self._is_ticking = True
            self.loop.call_later(PATIENCE, self._tick)

    def remove(self, watch: "ClientWatch") -> None:
        self._young.discard(watch)
        self._older.discard(watch)

    def _tick(self) -> None:
        for watch in self._older:
            watch.begin()
        self._older, self._young = self._young, set()
        self._is_ticking = bool(self._older)
        if self._is_ticking:
            self.loop.call_later(PATIENCE, self._tick)


class ClientWatch:
    """Cancels the surrounding block when the client leaves, and raises ClientGone out of it.

    Call `settle` before the last byte is sent. After that a disconnect is the normal end of the exchange.
    """

    __slots__ = ("_all", "_is_gone", "_is_settled", "_receive", "_task", "_watcher")

    def __init__(self, watcher: DisconnectWatcher, receive: Receive) -> None:
        self._all = watcher
        self._receive = receive
        self._is_settled = False
        self._is_gone = False
        self._watcher: asyncio.Task[None] | None = None

    def settle(self) -> None:
        self._is_settled = True

    def begin(self) -> None:
        """From now on, wait for the client to leave."""
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())

    def __enter__(self) -> "ClientWatch":
        task = asyncio.current_task(self._all.loop)  # finding the loop again costs a system call
        assert task is not None, "an ASGI application runs inside a task"
        self._task = task
        self._all.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all.remove(self)
        if self._watcher is not None:
            self._watcher.cancel()
        if self._is_gone and isinstance(error, asyncio.CancelledError) and self._task.uncancel() == 0:
            raise ClientGone from None

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._is_settled:
            self._is_gone = True
            self._task.cancel()
