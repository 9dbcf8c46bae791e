"""The benchmark's engine: a stub in vLLM's wire shape that answers at once with bytes recorded from `burnish.testing`.

It is small, so that the gateway's cost dominates. Every reply has 64 tokens with ids and log-probs; only the response
id is filled in. A streamed reply comes as from an engine: with each step, one event for every stream.
"""

import argparse
import asyncio
import json
import re
import urllib.request
import uuid
from typing import cast

import uvloop

from burnish.testing import Scripted, StubEngine

TEXT = "x" * 63  # and the end of the sequence: 64 tokens
ID = b"0" * 32
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_REQUEST_ID = re.compile(rb"x-request-id: *([0-9a-f]{32})", re.IGNORECASE)
_IS_STREAM = re.compile(rb'"stream": *true')


def recorded(*, stream: bool) -> bytes:
    """The body of one reply, with `ID` in place of the request id."""
    body = {
        "model": "base",
        "messages": [{"role": "user", "content": "x" * 64}],
        "logprobs": True,
        "return_token_ids": True,
    }
    with StubEngine([Scripted(TEXT)]) as engine:
        request = urllib.request.Request(
            f"{engine.url}/v1/chat/completions",
            json.dumps(body | {"stream": stream}).encode(),
            {"content-type": "application/json", "x-request-id": ID.decode()},
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            found: bytes = response.read()
    return found


WHOLE = recorded(stream=False)
EVENTS = [event + b"\n\n" for event in recorded(stream=True).split(b"\n\n") if event]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(WHOLE)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Connection(asyncio.Protocol):
    """One client's connection: requests in, recorded replies out."""

    def __init__(self, steps: "Steps") -> None:
        self._steps = steps
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            length = _LENGTH.search(head)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self._buffer) < size:
                return
            tail = self._buffer[max(end, size - 4096) : size]
            body_head = self._buffer[end : min(size, end + 512)]
            self._buffer = self._buffer[size:]
            found = _REQUEST_ID.search(head)
            self._answer(
                found[1] if found else uuid.uuid4().hex.encode(),
                _IS_STREAM.search(body_head) or _IS_STREAM.search(tail),
            )

    def _answer(self, request_id: bytes, is_stream: object) -> None:
        if is_stream:
            self.transport.write(STREAM_HEAD)
            self._steps.add(self, request_id)
        else:
            self.transport.write(HEAD + WHOLE.replace(ID, request_id))


class Steps:
    """The engine's loop: each step writes one event to every stream."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._streams: list[tuple[Connection, bytes, int]] = []

    def add(self, connection: Connection, request_id: bytes) -> None:
        self._streams.append((connection, request_id, 0))

    async def run(self) -> None:
        while True:
            still = []
            for connection, request_id, at in self._streams:
                if connection.transport.is_closing():
                    continue
                event = EVENTS[at].replace(ID, request_id)
                connection.transport.write(b"%x\r\n%b\r\n" % (len(event), event))
                if at + 1 < len(EVENTS):
                    still.append((connection, request_id, at + 1))
                else:
                    connection.transport.write(b"0\r\n\r\n")
            self._streams = still
            await asyncio.sleep(self._seconds)


async def serve(port: int, step: float) -> None:
    steps = Steps(step)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(steps), "127.0.0.1", port, backlog=2048)
    async with server:
        await steps.run()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--step", type=float, default=0.002, help="seconds between the steps of streamed replies")
    given = parser.parse_args()
    uvloop.run(serve(given.port, given.step))


if __name__ == "__main__":
    main()
