"""A stream of replies, ratings and versions watched live on one page: what happened and was never seen.

The replies go through the real gateway and ingester, at twice the pace of the demo or more. The page is the overview in
Chromium, which fetches its figures every five seconds. Nobody touches it.
"""

import asyncio
import json
import time
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar, Tell
from benchmarks.seen import parts
from burnish.adapters.registry import lifecycle
from burnish.adapters.serving import publish
from burnish.adapters.serving.prepare import prepare, routes_file, ui_key_file
from burnish.config import Settings
from burnish.journal import Journal
from burnish.testing import StubEngine
from tests.browser.chromium import running, tab

AGENT = "agent"
N_REPLIES = 256
RATE = 2.0
"""Replies a second."""
EVERY = 16
"""Replies for each version. Every fourth version is refused."""
RATED = 2
"""Every second reply is rated."""
AFTER = 12.0
"""Seconds for which the page is watched after the end."""
ENGINE_KEY = "live"
BARS: tuple[Bar, ...] = (
    (
        "events of 256 watched replies that the page never showed",
        "events_missed",
        "0",
        lambda f: f["events_missed"] == 0,
    ),
    ("memory of the pages' process meanwhile, MB", "live_rss_mb", "≤ 250", lambda f: f["live_rss_mb"] <= 250),
)
SHOWN = """[...document.querySelectorAll('.rows .row')].flatMap(row => {
    const turn = decodeURIComponent(row.querySelector('.row-link').pathname.split('/').pop());
    return [turn, ...[...row.querySelectorAll('.chip.good, .chip.bad')].map(() => `${turn} rated`)];
}).concat([...document.querySelectorAll('[aria-labelledby=made] li')].map(
    each => `${each.querySelector('b').innerText} ${each.querySelector('.state').innerText}`))"""


def measure(folder: Path, tell: Tell, n: int = N_REPLIES) -> dict[str, float]:
    """Events that happened and were missed, and the memory of the pages' process."""
    with StubEngine(replies=("It is on its way.", "It arrives on Thursday."), api_key=ENGINE_KEY) as engine:
        settings = parts.settings_in(folder / "state", engine.url, ENGINE_KEY)
        journal = prepare(settings)
        with parts.running(settings, "ingester") as pids:
            (folder / "browser").mkdir()
            with running(folder / "browser") as port:
                happened, seen = asyncio.run(_watched(port, settings, journal, engine, n, tell))
            memory = parts.peak_memory(pids["ui"])
        journal.close()
    missed = sorted(happened - seen)
    for each in missed[:10]:
        tell(f"never seen: {each}")
    return {"events_missed": len(missed), "live_rss_mb": memory, "events": len(happened), "live_replies": n}


async def _watched(
    port: int, settings: Settings, journal: Journal, engine: StubEngine, n: int, tell: Tell
) -> tuple[set[str], set[str]]:
    seen: set[str] = set()
    async with tab(port) as page:
        await parts.sign_in(page, settings)
        stream = asyncio.create_task(asyncio.to_thread(_stream, settings, journal, engine, n, tell))
        over: float | None = None
        while over is None or time.monotonic() < over:
            seen.update(await page.value(SHOWN))
            if stream.done() and over is None:
                over = time.monotonic() + AFTER
            await asyncio.sleep(0.2)
        return await stream, seen


def _stream(settings: Settings, journal: Journal, engine: StubEngine, n: int, tell: Tell) -> set[str]:
    """Replies, ratings and versions. Returns what happened, in the words of `SHOWN`."""
    happened: set[str] = set()
    began = time.monotonic()
    live = 0
    for number in range(n):
        time.sleep(max(0.0, began + number / RATE - time.monotonic()))
        asked = {"model": AGENT, "messages": [{"role": "user", "content": f"Where is parcel {number}?"}]}
        turn = str(_post(settings, "/v1/chat/completions", asked)["id"])
        happened.add(turn)
        if number % RATED == 0:
            _post(settings, "/v1/feedback", {"target": turn, "rating": 1.0 if number % 3 else -1.0})
            happened.add(f"{turn} rated")
        if number % EVERY == EVERY - 1:
            version = (number + 1) // EVERY
            live, what = _decide(settings, journal, engine, version, live)
            happened.add(what)
            tell(f"{number + 1} of {n} replies, {what}")
    return happened


def _decide(settings: Settings, journal: Journal, engine: StubEngine, version: int, live: int) -> tuple[int, str]:
    """A version that goes live or is refused, and what the page must say of it."""
    is_refused = version % 4 == 0
    with journal.write() as session:
        lifecycle.announce(session, AGENT, version, parent=live, step_id=None, digest="d")
        if is_refused:
            lifecycle.refuse(session, AGENT, version, reason="forgot 9 of 64 prompts", evidence={})
    if is_refused:
        return live, f"v{version} refused"
    engine.loaded[f"{AGENT}@v{version}"] = "here"
    with journal.write() as session:
        lifecycle.promote(session, AGENT, version, expected=live, actor="gate", reason="passed")
    publish.sync(journal, routes_file(settings), AGENT, also_loaded=version)
    return version, f"v{version} live"


def _post(settings: Settings, path: str, body: dict[str, Any]) -> Any:
    key = ui_key_file(settings).read_text(encoding="utf-8").strip()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    url = f"http://127.0.0.1:{settings.gateway.port}{path}"
    request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)
