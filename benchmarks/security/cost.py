"""The worst CPU time of one request or record of up to a mebibyte, in the gateway, the ingester and the judge.

Texts that make parsers slow (`tests/cost.py`) stand in every place where a client may put one, and bodies that are
large by their structure go to every route that reads one. The CPU time of the gateway's and the ingester's process is
read before and after. The ingester looks for records all the time: what that takes in so many seconds is measured first
and left out, because on a busy machine a record waits for long. What costs more than `CLOSE` is measured twice more,
and the least counts. The stub engine's prompts have at most `CONTEXT` tokens: an engine refuses longer ones. Chats
are asked of an agent whose turns are redacted too.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.bars import Tell
from benchmarks.security.attacks.stand import HELLO, Stand, standing
from burnish.judges import prefilter
from burnish.judges.verdicts import case, words
from burnish.judges.verdicts.verdict import as_text, question
from burnish.records import Feedback, FeedbackSource
from burnish.testing import prompt_ids
from tests.cost import hostile_texts, large_bodies, near_findings

CHAT = "/v1/chat/completions"
RECORDED = (CHAT, "/v1/completions", "/v1/responses", "/v1/messages")
CLOSE = 35.0
"""Milliseconds."""
CONTEXT = 32_768
IDLE_SECONDS = 5.0
SIZE = 2**20 - 4096
"""Characters of a text in a request."""


def measure(folder: Path, tell: Tell, n_texts: int | None = None) -> dict[str, float]:
    """The figures, in milliseconds. The worst requests are told. `n_texts`: only so many of the texts."""
    texts = list(hostile_texts())[:n_texts]
    near = list(near_findings())[:n_texts]
    found = {f"judge, {name}": _judged(make) for name, make in texts}
    short = patch("burnish.testing.chat_wire.prompt_ids", lambda body: prompt_ids(body)[:CONTEXT])
    with short, standing(folder, BURNISH_JOURNAL__REDACT='["second"]') as stand:
        idle = _idle(stand)
        for name, body in _bodies(texts):
            found |= _least(stand, name, CHAT, body, idle)
        for path, name, body in large_bodies():
            found |= _least(stand, name, path, body, idle)
        for name, body in _bodies([*near, *texts]):
            found |= _least(stand, f"redacting {name}", CHAT, {**body, "model": "second"}, idle)
        for path, name, body in large_bodies():
            if path == CHAT:
                found |= _least(stand, f"redacting {name}", path, {**body, "model": "second"}, idle)
    parts = {"gateway": "gateway, ", "redacting": "gateway, redacting", "ingester": "ingester", "judge": "judge"}
    worst = {
        part: max((ms, name) for name, ms in found.items() if name.startswith(begin)) for part, begin in parts.items()
    }
    for ms, name in sorted(((ms, name) for name, ms in found.items()), reverse=True)[:12]:
        tell(f"{ms:.1f} ms: {name}")
    figures = {f"worst_{part}_ms": ms for part, (ms, _) in worst.items()}
    return {**figures, "worst_ms": max(figures.values()), "worst_cases": float(len(found))}


def _idle(stand: Stand) -> float:
    """The share of a CPU that the ingester takes while nothing comes."""
    before = stand.cpu("ingester")
    time.sleep(IDLE_SECONDS)
    return (stand.cpu("ingester") - before) / IDLE_SECONDS


def _least(stand: Stand, name: str, path: str, body: dict[str, Any], idle: float) -> dict[str, float]:
    """What the gateway and the ingester need for one request, the least of three if it is close to the bar."""
    pairs = [_asked(stand, path, body, idle)]
    pairs += [_asked(stand, path, body, idle) for _ in range(2)] if max(pairs[0]) > CLOSE else []
    gateway, ingester = (min(each) for each in zip(*pairs, strict=True))
    return {f"gateway, {name}": gateway, f"ingester, {name}": ingester}


def _bodies(texts: list[tuple[str, Callable[[int], str]]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Requests with each text as a user's message, and every fourth in other places."""
    for number, (name, make) in enumerate(texts):
        text = _fitting(make)
        yield f"a user's {name}", {"messages": [{"role": "user", "content": text}]}
        if number % 4 == 0:
            yield f"an assistant's {name}", {"messages": [*HELLO, {"role": "assistant", "content": text}, *HELLO]}
            tool = {"role": "tool", "tool_call_id": "c", "content": text}
            yield f"a tool's {name}", {"messages": [*HELLO, {"role": "assistant", "content": "x"}, tool]}
            function = {"name": "f", "description": text, "parameters": {}}
            yield f"a definition's {name}", {"messages": HELLO, "tools": [{"type": "function", "function": function}]}


def _fitting(make: Callable[[int], str]) -> str:
    """The longest text that a body of a mebibyte can hold."""
    text = make(SIZE)
    while (size := len(json.dumps(text))) > SIZE:
        text = text[: int(len(text) * SIZE / size * 0.99)]
    return text


def _asked(stand: Stand, path: str, body: dict[str, Any], idle: float) -> tuple[float, float]:
    """Milliseconds of the gateway and of the ingester for one request."""
    given = body if "feedback" in path else {"model": "agent", **body}
    text = json.dumps(given, separators=(",", ":")).encode()
    began, before, record = time.monotonic(), stand.cpu(), stand.cpu("ingester")
    answer = stand.ask("POST", path, "both", content=text, headers={"content-type": "application/json"})
    gateway = stand.cpu() - before
    if answer.is_success and path in RECORDED:
        stand.settled(str(answer.json()["id"]))
    filed = stand.cpu("ingester") - record - idle * (time.monotonic() - began)
    return 1000 * gateway, 1000 * max(0.0, filed)


def _judged(make: Callable[[int], str]) -> float:
    """Milliseconds of the judge's own code for one turn with the text in the request, the reply and what came back."""
    text = make(SIZE // 3).encode()[: SIZE // 3].decode(errors="ignore")
    asked, reply, after = ({"role": role, "content": text} for role in ("user", "assistant", "user"))
    said = Feedback("f", "t", "default", "k", FeedbackSource.USER, 0.0, -1.0, text, text)
    times: list[float] = []
    while not times or (min(times) > CLOSE and len(times) < 3):
        began = time.thread_time()
        prefilter.reason([asked], reply)
        case.ask(question([asked], as_text(reply), [after], "user"))
        words.judgement("t", said)
        times.append(1000 * (time.thread_time() - began))
    return min(times)
