"""What clients saw, kept outside of Burnish, and the audit that compares it with the journal.

A client writes a line after it has read a whole reply. The audit reads the journal with `sqlite3` alone: none of the
code that is under test says what is in it.
"""

import json
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

THINK = 0.1
"""Seconds between two requests of a client."""
EXCUSED = {"gateway", "engine"}
"""Parts without which no reply can be given."""
GRACE = 2.0
"""Seconds after a recovery in which a failed request still counts for the fault."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One request: its own text, when it was made and answered, and whether its reply came whole."""

    text: str
    began: float
    ended: float
    is_whole: bool
    is_stream: bool
    error: str = ""


@dataclass
class Ledger:
    """The lines of all clients, in a file that is only appended to."""

    file: Path
    seen: list[Seen] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self) -> "Ledger":
        """The lines of an earlier run."""
        if self.file.exists():
            self.seen = [Seen(**json.loads(line)) for line in self.file.read_text(encoding="utf-8").splitlines()]
        return self

    def add(self, seen: Seen) -> None:
        with self._lock, self.file.open("a", encoding="utf-8") as stream:
            self.seen.append(seen)
            stream.write(json.dumps({name: getattr(seen, name) for name in seen.__dataclass_fields__}) + "\n")

    @property
    def n_whole(self) -> int:
        return sum(each.is_whole for each in self.seen)


class Clients:
    """Threads that talk, each in conversations of its own, until they are stopped.

    `most` bounds the turns of all. `think`: seconds between two requests of a client. With `key` they also rate every
    whole reply, for a third of them with a wish. The wishes contradict each other: nothing is to be learned here.
    """

    def __init__(self, url: str, ledger: Ledger, n: int, most: int, *, think: float = THINK, key: str = "") -> None:
        self._url = url
        self._ledger = ledger
        self._most = most
        self._think = think
        self._key = key
        self.rated: list[str] = []
        """The replies whose ratings were accepted."""
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._talk, args=(i,), daemon=True) for i in range(n)]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(90)

    def _talk(self, number: int) -> None:
        messages: list[dict[str, Any]] = []
        for turn in self._numbers():
            if turn % 6 == 0:
                messages = []
            text = f"client {number} turn {turn} at {time.time_ns()}"
            messages.append({"role": "user", "content": text})
            began, is_stream = time.time(), turn % 2 == 0
            try:
                name, reply = self._ask(messages, is_stream=is_stream)
                self._ledger.add(Seen(text, began, time.time(), True, is_stream))
                if self._key:
                    self._rate(name, turn)
                messages.append({"role": "assistant", "content": reply})
            except (httpx.HTTPError, ValueError, KeyError) as error:
                self._ledger.add(Seen(text, began, time.time(), False, is_stream, repr(error)[:200]))
                messages = []

    def _numbers(self) -> Iterator[int]:
        turn = 0
        while not self._is_over.wait(self._think) and len(self._ledger.seen) < self._most:
            yield turn
            turn += 1

    def _rate(self, name: str, turn: int) -> None:
        """Rate the reply `name`. If the gateway is away, nothing was accepted."""
        wish = {0: "Be brief.", 3: "Say more."}.get(turn % 6)
        body = {"target": name, "rating": "up" if turn % 2 else "down", **({"comment": wish} if wish else {})}
        with suppress(httpx.HTTPError), httpx.Client(base_url=self._url, timeout=60) as http:
            headers = {"authorization": f"Bearer {self._key}"}
            if http.post("/v1/feedback", json=body, headers=headers).status_code == httpx.codes.ACCEPTED:
                self.rated.append(name)

    def _ask(self, messages: list[dict[str, Any]], *, is_stream: bool) -> tuple[str, str]:
        """Id and words of the whole reply. Raises if it is none, or ends before its end."""
        body = {"model": "agent", "messages": messages, "stream": is_stream, "max_tokens": 24}
        with httpx.Client(base_url=self._url, timeout=60) as http:
            if not is_stream:
                answer = http.post("/v1/chat/completions", json=body).raise_for_status().json()
                return str(answer["id"]), str(answer["choices"][0]["message"]["content"])
            name, said, is_done = "", [], False
            with http.stream("POST", "/v1/chat/completions", json=body) as response:
                response.raise_for_status()
                for line in response.iter_lines():
                    data = line.removeprefix("data: ")
                    if data == "[DONE]":
                        is_done = True
                    elif line:
                        chunk = json.loads(data)
                        if "error" in chunk:
                            raise ValueError(f"an error in mid-stream: {chunk['error']}")
                        name = str(chunk["id"])
                        said += [choice["delta"].get("content") or "" for choice in chunk["choices"]]
            if not is_done:
                raise ValueError("the stream ended before its end")
            return name, "".join(said)


@dataclass(frozen=True, slots=True)
class Audit:
    """Whole replies that are not in the journal, or more than once; rows in two published steps."""

    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    trained_twice: int
    n_filed: int


def audit(journal: Path, ledger: Ledger) -> Audit:
    """Compare. A reply is found by its request's own text, the last message of its turn."""
    with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as database:
        return audit_rows(database.execute, ledger)


def audit_rows(rows: Callable[[str], Iterable[Any]], ledger: Ledger) -> Audit:
    """The same for a journal whose queries `rows` answers. JSON columns may be text or parsed."""
    last = Counter(_parsed(digests)[-1] for (digests,) in rows("SELECT message_digests FROM interaction"))
    texts = {
        content: digest
        for digest, body in rows("SELECT digest, body FROM blob WHERE body LIKE '%client %'")
        if isinstance(content := json.loads(body).get("content"), str)
    }
    ((twice,),) = rows(
        "SELECT count(*) FROM (SELECT interaction_id FROM sample JOIN step USING (step_id) "
        "WHERE outcome = 'published' GROUP BY interaction_id HAVING count(*) > 1) AS twice"
    )
    filed = {each.text: last[texts[each.text]] if each.text in texts else 0 for each in ledger.seen if each.is_whole}
    lost = tuple(text for text, n in filed.items() if n == 0)
    doubled = tuple(text for text, n in filed.items() if n > 1)
    return Audit(lost, doubled, int(twice), sum(last.values()))


def _parsed(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def wait_filed(look: Callable[[], Audit], seconds: float) -> Audit:
    """The audit once nothing is lost, or after `seconds`."""
    until = time.monotonic() + seconds
    while (found := look()).lost and time.monotonic() < until:
        time.sleep(1.0)
    return found
