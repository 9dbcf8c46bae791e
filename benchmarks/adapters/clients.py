"""Clients that check each reply's text against the version that its header names, streamed or whole.

They run in their own process: `python -m benchmarks.adapters.clients` reads a Job as JSON from the first line of stdin,
prints `ready`, and works until a second line comes. Then it prints a Seen as JSON. Times are of the system's monotonic
clock, in seconds.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import aiohttp
import uvloop

from benchmarks.adapters.words import voice_of, words_of
from burnish.records import VersionName

QUESTIONS = ("hello", "Tell me about 12 34.", "Who are you?", "Copy 5 6.", "What is the last of 7 8 22?")
AGENT, WHOLE = "agent", 64
"""The agent that the requests name, and the number of tokens after which each voice ends."""


@dataclass
class Job:
    """`streams` and `wholes` clients on `port`, with `key`, if any. Each asks again `pause` seconds after its answer.

    `users` maps end users to the agents that must answer them; requests come from each user in turn. `voices` maps a
    version's name to its voice, if the voice does not follow from the number.
    """

    port: int
    n_voices: int
    streams: int = 4
    wholes: int = 2
    max_tokens: int = 64
    pause: float = 0.0
    key: str = ""
    users: Mapping[str, str] = field(default_factory=dict)
    voices: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Seen:
    """The results of a job.

    `gaps`: (arrival, seconds since the previous piece) of streams. `answers`: (start, end, version, id).
    """

    n_ok: int = 0
    n_failed: int = 0
    n_wrong: int = 0
    gaps: list[tuple[float, float]] = field(default_factory=list)
    answers: list[tuple[float, float, str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Clients:
    """Ask until `stop` is set."""

    def __init__(self, job: Job, http: aiohttp.ClientSession) -> None:
        self._job = job
        self._http = http
        self._n = 0
        self._users = list(job.users.items())
        self._headers = {"authorization": f"Bearer {job.key}"} if job.key else {}
        self.seen = Seen()
        self.stop = asyncio.Event()

    async def run(self) -> Seen:
        await asyncio.gather(
            *[self._ask_on(i < self._job.streams) for i in range(self._job.streams + self._job.wholes)]
        )
        return self.seen

    async def _ask_on(self, is_stream: bool) -> None:
        while not self.stop.is_set():
            self._n += 1
            await self._ask(self._n, is_stream)
            if self._job.pause:
                await asyncio.sleep(self._job.pause)

    async def _ask(self, n: int, is_stream: bool) -> None:
        job, asked_at = self._job, time.monotonic()
        body = {
            "model": AGENT,
            "messages": [{"role": "user", "content": QUESTIONS[n % len(QUESTIONS)]}],
            "temperature": 0,
            "max_tokens": job.max_tokens,
            "stream": is_stream,
        }
        agent = AGENT
        if self._users:
            body["user"], agent = self._users[n % len(self._users)]
        try:
            url = f"http://127.0.0.1:{job.port}/v1/chat/completions"
            async with self._http.post(url, json=body, headers=self._headers) as response:
                version, request_id = (
                    response.headers.get("x-burnish-version", ""),
                    response.headers.get("x-request-id", ""),
                )
                if response.status != 200:
                    return self._failed(f"{response.status} {(await response.text())[:200]}")
                text = await (self._read_stream(response) if is_stream else self._read_whole(response))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError) as error:
            return self._failed(repr(error))
        self.seen.answers.append((asked_at, time.monotonic(), version, request_id))
        self.seen.n_ok += 1
        if not is_right(job, agent, version, text):
            self.seen.n_wrong += 1
            self.seen.faults.append(f"{agent} answered as {version}: {text!r}")

    def _failed(self, why: str) -> None:
        self.seen.n_failed += 1
        self.seen.faults.append(why)

    async def _read_whole(self, response: aiohttp.ClientResponse) -> str:
        return str((await response.json())["choices"][0]["message"]["content"])

    async def _read_stream(self, response: aiohttp.ClientResponse) -> str:
        text, last, is_done = "", 0.0, False
        async for line in response.content:
            if line == b"data: [DONE]\n":
                is_done = True
            elif line.startswith(b"data: "):
                choices = json.loads(line[6:])["choices"]
                piece = choices[0]["delta"].get("content") if choices else None
                if piece:
                    now = time.monotonic()
                    if last:
                        self.seen.gaps.append((now, now - last))
                    last, text = now, text + piece
        if not is_done:
            raise ValueError("a stream ended without data: [DONE]")
        return text


def is_right(job: Job, agent: str, version: str, text: str) -> bool:
    """Whether `version` belongs to `agent` and `text` is its text, cut at the same length as the job's replies."""
    named = VersionName.parse(version)
    if named is None or named.agent != agent:
        return False
    if not named.version:
        return True  # the base has no text of its own
    words = words_of(job.voices.get(version, voice_of(named.version, job.n_voices)))
    return text == words if job.max_tokens >= WHOLE else bool(text) and words.startswith(text)


async def work(job: Job) -> Seen:
    loop = asyncio.get_running_loop()
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http:
        clients = Clients(job, http)
        threading.Thread(target=_wait_for_line, args=(loop, clients.stop), daemon=True).start()
        print("ready", flush=True)
        return await clients.run()


def _wait_for_line(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    sys.stdin.readline()
    loop.call_soon_threadsafe(stop.set)


def main() -> None:
    seen = uvloop.run(work(Job(**json.loads(sys.stdin.readline()))))
    json.dump(asdict(seen), sys.stdout)


if __name__ == "__main__":
    main()
