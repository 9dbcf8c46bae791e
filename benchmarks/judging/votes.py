"""Votes a second that a judge's client collects over HTTP from an OpenAI-compatible server that answers at once."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop

from benchmarks.judging.turns import SYSTEM
from burnish.judges.judge import Judge
from burnish.judges.models.local import LocalJudge
from burnish.judges.models.remote import RemoteJudge

QUESTION = [
    {"role": "system", "content": str(SYSTEM["content"])},
    {"role": "user", "content": "<reply>\nyes\n</reply>" * 20},
]
VOTES = 3


class Server(asyncio.Protocol):
    """Answers every request with the requested number of choices and reads nothing else of it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or b"0")
            if len(self._buffer) < end + 4 + size:
                return
            asked = json.loads(self._buffer[end + 4 : end + 4 + size])
            self._buffer = self._buffer[end + 4 + size :]
            self._transport.write(_answer(int(asked.get("n") or 1)))  # type: ignore[attr-defined]


def _answer(n: int) -> bytes:
    message = {"role": "assistant", "content": "VERDICT: +1\nHINT: none"}
    choices = [{"index": i, "message": message, "finish_reason": "stop"} for i in range(n)]
    usage = {"prompt_tokens": 1, "completion_tokens": n, "total_tokens": n + 1}
    body = json.dumps(
        {"id": "c", "object": "chat.completion", "created": 1, "model": "j", "choices": choices, "usage": usage}
    ).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


@contextmanager
def server() -> Iterator[str]:
    """A server in its own process. Yields its base URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.judging.votes", str(port)])
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def per_second(judge: Judge, n_turns: int, concurrency: int = 32) -> float:
    """Votes a second that `judge` collects, three for each turn."""

    async def client(left: list[int]) -> int:
        n_votes = 0
        while left:
            left.pop()
            n_votes += len(await judge.answers(QUESTION, VOTES))
        return n_votes

    async def run() -> float:
        await judge.answers(QUESTION, VOTES)
        left = list(range(n_turns))
        started = time.perf_counter()
        n_votes = sum(await asyncio.gather(*(client(left) for _ in range(concurrency))))
        seconds = time.perf_counter() - started
        await judge.close()
        return n_votes / seconds

    return asyncio.run(run())


def measure() -> dict[str, float]:
    """Our client, compared with litellm."""
    with server() as url:
        ours = per_second(LocalJudge(url, "j"), 3000)
        litellm = per_second(RemoteJudge("openai/j", url=url, api_key="none"), 60)
    return {"http_votes_per_s": ours, "litellm_votes_per_s": litellm}


async def _serve(port: int) -> None:
    listening = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", port)
    await listening.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
