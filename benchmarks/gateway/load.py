"""The benchmark's clients, in their own process: many connections, requests as bytes, times to the microsecond.

A job names the target, the requests and the rate. `python -m benchmarks.gateway.load` reads one as JSON from stdin and
prints its results. Latencies are in milliseconds. Anything but a 200 with a whole body counts as failed.
"""

import asyncio
import json
import re
import secrets
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import cast

import uvloop

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_REQUEST_ID = re.compile(rb"x-request-id: *([0-9a-f]{32})", re.IGNORECASE)


@dataclass
class Job:
    """`kind`: `chat` (bodies of `size` bytes), `stream`, or `growing` (conversations `first` to `first + sessions`,
    which begin with `n_history` messages). `key` is sent with each request, if there is one.

    With `rate`, requests start at that rate per second, even if earlier ones still run (open loop). Without it, each of
    `connections` asks again after its answer (closed loop), for `seconds` or `n_requests`. With `is_traced`, each
    request has a `traceparent`.
    """

    port: int
    kind: str = "chat"
    connections: int = 1
    seconds: float = 2.0
    n_requests: int = 0
    rate: float = 0.0
    size: int = 2048
    sessions: int = 0
    first: int = 0
    turns: tuple[int, int] = (0, 0)
    n_history: int = 96
    model: str = "agent"
    seed: int = 0
    is_traced: bool = False
    key: str = ""


@dataclass
class Seen:
    """The results of a job."""

    n_ok: int = 0
    n_failed: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    first_bytes: list[float] = field(default_factory=list)
    n_events: int = 0
    request_ids: list[str] = field(default_factory=list)


class Wire(asyncio.Protocol):
    """One keep-alive connection that carries one request at a time."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[bool] | None = None
        self._parts: list[bytes] = []
        self._needed = -1
        self._have = 0
        self.head = b""
        self.first_at = 0.0
        self.n_events = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(False)

    async def ask(self, request: bytes) -> bool:
        """Send one request. True once its answer is whole and its status 200."""
        self._waiter = asyncio.get_running_loop().create_future()
        self._parts, self._needed, self._have, self.head, self.first_at, self.n_events = [], -1, 0, b"", 0.0, 0
        self.transport.write(request)
        return await self._waiter

    def data_received(self, data: bytes) -> None:
        if not self.head:
            self._parts.append(data)
            joined = b"".join(self._parts)
            end = joined.find(b"\r\n\r\n")
            if end < 0:
                self._parts = [joined]
                return
            self.head, data = joined[:end], joined[end + 4 :]
            length = _LENGTH.search(self.head)
            self._needed = int(length[1]) if length else 0
            self._parts = [b""]
        if data and not self.first_at:
            self.first_at = time.perf_counter()
        self._have += len(data)
        if self._needed:
            is_whole = self._have >= self._needed
        else:
            self.n_events += data.count(b"data: ")
            self._parts[0] = (self._parts[0] + data)[-7:]
            is_whole = self._parts[0].endswith(b"\r\n0\r\n\r\n")
        if is_whole and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(self.head.startswith(b"HTTP/1.1 200"))


def framed(body: bytes, job: Job) -> bytes:
    key = f"authorization: Bearer {job.key}\r\n" if job.key else ""
    traceparent = f"traceparent: 00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01\r\n" if job.is_traced else ""
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\n"
        f"host: 127.0.0.1:{job.port}\r\ncontent-type: application/json\r\n{key}{traceparent}"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def bodies(job: Job) -> Iterator[bytes]:
    """An endless iterator of bodies. Each begins a new conversation."""
    filler = 'the quick brown fox jumps over the lazy dog and says \\"hello\\" to it; '
    n = 0
    while True:
        n += 1
        opening = f"{job.seed}-{n} "
        text = (opening + filler * (job.size // len(filler) + 1))[: max(16, job.size - 110)].rstrip("\\")
        stream = ', "stream": true' if job.kind == "stream" else ""
        yield f'{{"model": "{job.model}", "messages": [{{"role": "user", "content": "{text}"}}]{stream}}}'.encode()


def growing(job: Job) -> Iterator[bytes]:
    """Turn after turn of every session. Each repeats the whole conversation, the last reply and one more message."""
    from benchmarks.gateway.sessions import body_of

    for turn in range(*job.turns):
        for session in range(job.first, job.first + job.sessions):
            yield body_of(session, turn, job.model, job.n_history)


async def run(job: Job) -> Seen:
    loop = asyncio.get_running_loop()
    wires = [(await loop.create_connection(Wire, "127.0.0.1", job.port))[1] for _ in range(job.connections)]
    requests = (
        iter(list(growing(job))) if job.kind == "growing" else bodies(job)
    )  # built in advance, because they cost the client much time
    seen = Seen()
    started = time.perf_counter()
    await (_paced(job, wires, requests, seen) if job.rate else _as_fast_as_answered(job, wires, requests, seen))
    seen.seconds = time.perf_counter() - started
    for wire in wires:
        wire.transport.close()
    return seen


async def _as_fast_as_answered(job: Job, wires: list[Wire], requests: Iterator[bytes], seen: Seen) -> None:
    until = time.perf_counter() + job.seconds if not (job.n_requests or job.kind == "growing") else float("inf")
    left = job.n_requests or sys.maxsize

    async def client(wire: Wire) -> None:
        nonlocal left
        while left > 0 and time.perf_counter() < until:
            left -= 1
            body = next(requests, None)
            if body is None:
                return
            await _one(wire, framed(body, job), seen, time.perf_counter())

    await asyncio.gather(*map(client, wires))


async def _paced(job: Job, wires: list[Wire], requests: Iterator[bytes], seen: Seen) -> None:
    """Send requests at the job's rate.

    Start times are fixed in advance, and a late start counts as latency, so that a slow server cannot hide behind its
    own queue. A thread keeps the time. The loop's own timers are coarse, and a spinning loop would take its core from
    the upstream.
    """
    n_requests = int(job.rate * job.seconds)
    made = iter([framed(next(requests), job) for _ in range(n_requests)])
    free, waiting = list(wires), deque[tuple[bytes, float]]()
    running: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()
    are_started = asyncio.Event()

    async def serve(wire: Wire, request: bytes, due: float) -> None:
        await _one(wire, request, seen, due)
        while waiting:
            request, due = waiting.popleft()
            await _one(wire, request, seen, due)
        free.append(wire)

    def start(due: float) -> None:
        request = next(made)
        if free:
            task = asyncio.create_task(serve(free.pop(), request, due))
            running.add(task)
            task.add_done_callback(running.discard)
        else:
            waiting.append((request, due))

    def keep_time() -> None:
        started = time.perf_counter()
        for n in range(n_requests):
            due = started + n / job.rate
            if (wait := due - time.perf_counter()) > 0:
                time.sleep(wait)
            loop.call_soon_threadsafe(start, due)
        loop.call_soon_threadsafe(are_started.set)

    await asyncio.gather(asyncio.to_thread(keep_time), are_started.wait())
    await asyncio.gather(*running)


async def _one(wire: Wire, request: bytes, seen: Seen, since: float) -> None:
    is_ok = await wire.ask(request)
    seen.latencies.append((time.perf_counter() - since) * 1e3)
    seen.first_bytes.append((wire.first_at - since) * 1e3)
    seen.n_events += wire.n_events
    if is_ok:
        seen.n_ok += 1
        if found := _REQUEST_ID.search(wire.head):
            seen.request_ids.append(found[1].decode())
    else:
        seen.n_failed += 1


def main() -> None:
    seen = uvloop.run(run(Job(**json.load(sys.stdin))))
    json.dump(asdict(seen), sys.stdout)


if __name__ == "__main__":
    main()
