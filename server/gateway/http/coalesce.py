"""The head of an answer waits for its body, so that both leave in one packet and wake the client once.

What is written after the client has gone is dropped. uvloop would raise, and each such answer would count as a defect.
"""

import asyncio
from typing import Any

_HEAD = b"HTTP/1.1 "


class CoalescedSend(asyncio.Transport):
    """Wraps a server's transport. A head is held until the next write, or until the next turn of the loop."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._held = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._held:
            head, self._held = self._held, b""
            self._send(b"".join((head, data)))
        elif data[: len(_HEAD)] == _HEAD:
            self._held = bytes(data)
            self._loop.call_soon(self._flush)
        else:
            self._send(data)

    def write_now(self, data: bytes) -> None:
        """Send at once, whatever may follow."""
        if self._held:
            self._flush()
        self._send(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._held = b""
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def _flush(self) -> None:
        if self._held:
            self._send(self._held)
        self._held = b""

    def _send(self, data: bytes | bytearray | memoryview) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)
