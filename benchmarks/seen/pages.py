"""The pages over a long journal: how soon each is seen, the slowest query, their process's memory, and axe's word.

The gateway and the pages run as their own processes, as `burnish up` starts them. Chromium shows each page at two
widths and in both themes.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from sqlalchemy import event
from sqlmodel import Session

from benchmarks.bars import Bar, Tell
from benchmarks.seen import parts
from benchmarks.seen.journal import N_VERSIONS, fill
from burnish.adapters.serving.prepare import prepare
from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.listing import feedback, figures, judge_figures, label_queue, pairs, turns
from burnish.journal.listing.turns import Fate, Wanted
from tests.browser import axe
from tests.browser.chromium import Page, running, tab

BARS: tuple[Bar, ...] = (
    ("pages shown at both widths and in both themes, of all", "pages", "all", lambda f: f["pages"] == f["pages_all"]),
    ("serious violations that axe finds", "axe_serious", "0", lambda f: f["axe_serious"] == 0),
    ("first contentful paint of a page, p95, seconds", "page_p95_s", "≤ 1.5", lambda f: f["page_p95_s"] <= 1.5),
    ("slowest query, ms", "query_ms", "≤ 50", lambda f: f["query_ms"] <= 50),
    ("memory of the pages' process, MB", "ui_rss_mb", "≤ 250", lambda f: f["ui_rss_mb"] <= 250),
)
VIEWS = tuple((width, theme) for width in (1440, 390) for theme in ("light", "dark"))
VISITS = 5
AGENT = "agent"
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def measure(folder: Path, tell: Tell, n_turns: int) -> dict[str, float]:
    """The figures for a journal of `n_turns` turns. Violations and the slowest queries are told."""
    settings = parts.settings_in(folder / "state")
    journal = prepare(settings)
    began = time.monotonic()
    trained = fill(journal, AGENT, n_turns, tell)[0]
    filled = time.monotonic() - began
    found: dict[str, float] = {"turns": n_turns, "fill_s": round(filled, 1)}
    found |= _queries(journal, tell)
    journal.close()
    with parts.running(settings) as pids, ExitStack() as stack:
        profile = folder / "browser"
        profile.mkdir()
        port = stack.enter_context(running(profile))
        found |= asyncio.run(_look(port, settings, _paths(trained), tell))
        found["ui_rss_mb"] = parts.peak_memory(pids["ui"])
    return found


def _paths(turn: str) -> list[str]:
    home = f"/a/{AGENT}"
    return [
        *(f"{home}/{page}" for page in ("overview", "conversations", "feedback", "labels", "versions", "compare")),
        *(f"{home}/{page}" for page in ("learner", "judges", f"turns/{turn}", "versions/60", "learner/12")),
        f"{home}/conversations?version=12",
        f"{home}/conversations?text=hinge&fate=trained",
        f"{home}/sessions/s-00000007",
        *("/agents", "/keys", "/people?user=user-3", "/audit", "/login"),
    ]


async def _look(port: int, settings: Settings, paths: list[str], tell: Tell) -> dict[str, float]:
    origin = parts.origin_of(settings)
    paints: list[float] = []
    n_shown = n_serious = 0
    async with tab(port) as page:
        await parts.sign_in(page, settings)
        for width, theme in VIEWS:
            await _view(page, width, theme)
            for path in paths:
                tell(f"{path} at {width} pixels, {theme}")
                for _ in range(VISITS):
                    await page.open(origin + path)
                    await page.until(PAINT)
                    paints.append(await page.value(PAINT) / 1000)
                serious = await axe.violations(page)
                is_wide = await page.value("document.documentElement.scrollWidth > innerWidth")
                for each in serious:
                    tell(f"{path} at {width} pixels, {theme}: {each}")
                if is_wide:
                    tell(f"{path} is wider than {width} pixels")
                n_serious += len(serious)
                n_shown += not is_wide
    shown = {"pages": n_shown, "pages_all": len(paths) * len(VIEWS), "axe_serious": n_serious}
    return {**shown, "page_p95_s": round(quantiles(paints, n=20)[-1], 3), "page_p50_s": round(median(paints), 3)}


async def _view(page: Page, width: int, theme: str) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    await page.call("Emulation.setDeviceMetricsOverride", **size)
    await page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])


def _queries(journal: Journal, tell: Tell) -> dict[str, float]:
    """The slowest query of all lists and figures, and the slowest list (the median of five runs after one), in ms."""
    asked: dict[str, Callable[[Session], Any]] = {
        "turns": lambda s: turns.page(s, AGENT, Wanted()),
        "turns of a version": lambda s: turns.page(s, AGENT, Wanted(version=12)),
        "turns of a user": lambda s: turns.page(s, AGENT, Wanted(user="user-3")),
        "turns by fate": lambda s: turns.page(s, AGENT, Wanted(fate=Fate.TRAINED)),
        "turns by text": lambda s: turns.page(s, AGENT, Wanted(text="hinge")),
        "a session": lambda s: turns.of_session(s, AGENT, "s-00000007"),
        "feedback": lambda s: feedback.page(s, AGENT, "default", said=None, before=None, limit=50),
        "corrections": lambda s: feedback.page(
            s, AGENT, "default", said=feedback.Said.CORRECTION, before=None, limit=50
        ),
        "turns to label": lambda s: label_queue.queue(s, AGENT, label_queue.Why.DISAGREED, before=None, limit=20),
        "turns for a second opinion": lambda s: label_queue.queue(
            s, AGENT, label_queue.Why.SECOND, before=None, limit=20
        ),
        "agreement with judges": lambda s: judge_figures.agreement(s, AGENT, "default"),
        "costs of judging": lambda s: judge_figures.costs(s, AGENT, 0.0),
        "votes of people": lambda s: pairs.votes(s, AGENT, "default", N_VERSIONS),
        "traffic": lambda s: figures.traffic(s, AGENT, time.time(), 30 * 86_400 / figures.BUCKETS),
        "scores": lambda s: figures.scores(s, AGENT),
        "fates": lambda s: figures.fates(s, AGENT),
    }
    lists: list[float] = []
    queries: list[float] = []
    for name, ask in asked.items():
        said: list[tuple[str, Any]] = []

        def note(_connection: Any, _cursor: Any, text: str, given: Any, *_: Any, said: Any = said) -> None:
            if text != "BEGIN":
                said.append((text, given))

        event.listen(journal.engine, "before_cursor_execute", note)
        spent = []
        for _ in range(6):
            said.clear()
            began = time.perf_counter()
            with journal.read() as session:
                ask(session)
            spent.append(1000 * (time.perf_counter() - began))
        event.remove(journal.engine, "before_cursor_execute", note)
        slowest = _slowest(journal, said)
        tell(f"{name}: {median(spent[1:]):.1f} ms, at first {spent[0]:.1f} ms; its slowest query {slowest:.1f} ms")
        lists.append(median(spent[1:]))
        queries.append(slowest)
    return {"query_ms": round(max(queries), 1), "list_ms": round(max(lists), 1)}


def _slowest(journal: Journal, said: list[tuple[str, Any]]) -> float:
    """The slowest of the statements with all of its rows, in ms."""
    found = 0.0
    with journal.engine.connect() as connection:
        for text, given in said:
            began = time.perf_counter()
            connection.exec_driver_sql(text, given).fetchall()
            found = max(found, 1000 * (time.perf_counter() - began))
    return found
