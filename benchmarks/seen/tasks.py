"""Five tasks of somebody who sees the pages for the first time, done by what the pages say, with clicks counted.

Every task begins on the page after the sign-in. Its steps name only words that are to be seen there. Choosing from a
list counts as two clicks, typing as none. What was reached is read from the admin API.
"""

import asyncio
import json
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar, Tell
from benchmarks.seen import parts
from benchmarks.seen.journal import N_VERSIONS, fill
from burnish import serving_table
from burnish.adapters.serving import publish
from burnish.adapters.serving.prepare import prepare, routes_file, ui_key_file
from burnish.config import Settings
from burnish.testing import StubEngine
from tests.browser.chromium import Page, running, tab

AGENT = "agent"
N_TURNS = 20_000
ENGINE_KEY = "tasks"
MOST_CLICKS = 4
BARS: tuple[Bar, ...] = (
    ("a new user's tasks done, of 5", "tasks_done", "5", lambda f: f["tasks_done"] == 5),
    ("clicks of the longest of them", "tasks_clicks", "≤ 4", lambda f: f["tasks_clicks"] <= MOST_CLICKS),
)
SEEN = """[...document.querySelectorAll('a, button, summary, [role=button]')].filter(e => e.offsetParent)
    .filter(e => e.innerText.trim().toLowerCase().includes({words}.toLowerCase()))"""


class User:
    """Somebody in front of the pages."""

    def __init__(self, page: Page, settings: Settings) -> None:
        self.page, self.settings = page, settings
        self.n_clicks = 0

    async def click(self, words: str) -> None:
        """Click on the first thing to click that says `words`. Waits for the page that it leads to."""
        await self._click(SEEN.replace("{words}", json.dumps(words)) + "[0]")

    async def click_first_row(self) -> None:
        """Click on the first entry of a list."""
        await self._click("document.querySelector('.row-link')")

    async def says(self, words: str) -> bool:
        """Whether the page says `words`, to be seen without a click."""
        return bool(await self.page.value(f"document.body.innerText.includes({json.dumps(words)})"))

    async def asked(self, path: str) -> Any:
        """The admin API's word on what was reached."""
        return await asyncio.to_thread(self._asked, path)

    async def _click(self, element: str) -> None:
        await self.page.until(f"document.readyState === 'complete' && {element}")
        await self.page.value(f"{element}.scrollIntoView({{block: 'center'}})")
        box = f"{element}.getBoundingClientRect()"
        x, y = await self.page.value(f"[{box}.x + Math.min({box}.width, 300) / 2, {box}.y + {box}.height / 2]")
        for kind in ("mousePressed", "mouseReleased"):
            await self.page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.n_clicks += 1
        await asyncio.sleep(0.3)  # a page that is left is still complete

    def _asked(self, path: str) -> Any:
        key = ui_key_file(self.settings).read_text(encoding="utf-8").strip()
        url = f"http://127.0.0.1:{self.settings.gateway.port}/admin{path}"
        request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)


async def why_not_trained(user: User) -> bool:
    """Find why a turn did not train."""
    await user.click("kept out of training")
    await user.click_first_row()
    await user.page.until("location.pathname.includes('/turns/')")
    turn = str(await user.page.value("decodeURIComponent(location.pathname.split('/').pop())"))
    status = (await user.asked(f"/turns/{turn}"))["training_status"]
    return "trained into" not in status and await user.says(status)


async def correct(user: User) -> bool:
    """Correct a reply."""
    await user.click_first_row()
    await user.page.until("location.pathname.includes('/turns/')")
    turn = str(await user.page.value("decodeURIComponent(location.pathname.split('/').pop())"))
    await user.click("Correct the reply")
    await user.page.until("document.activeElement.name === 'correction'")
    await user.page.value("document.activeElement.select()")
    await user.page.write("It arrives on Friday.")
    await user.click("Send")
    for _ in range(200):
        said = (await user.asked(f"/turns/{turn}"))["feedback"]
        if any(each["correction"] == "It arrives on Friday." for each in said):
            return True
        await asyncio.sleep(0.1)
    return False


async def compare(user: User) -> bool:
    """Compare two versions and say which is better."""
    await user.click("Compare")
    await user.page.until("document.activeElement.name === 'prompt'")
    await user.page.write("Where is my parcel?")
    await user.click("Ask both")
    await user.click("A is better")
    await user.page.until("document.querySelector('[data-tally]').textContent")
    return await user.says("Recorded")


async def roll_back(user: User) -> bool:
    """Make the version before live again."""
    before = (await user.asked(f"/agents/{AGENT}/versions"))["previous"]
    await user.click("Versions")
    await user.click("Roll back to")
    await user.page.until("document.activeElement.name === 'reason'")
    await user._click("document.activeElement.form.querySelector('button')")
    await user.page.until("document.querySelector('.flash')")
    return bool((await user.asked(f"/agents/{AGENT}/versions"))["live"] == before)


async def got_better(user: User) -> bool:
    """See whether the agent got better."""
    told = (await user.asked(f"/agents/{AGENT}/status"))["progress"]
    return told["verdict"] == "better" and await user.says(told["sentence"])


TASKS: tuple[Callable[[User], Awaitable[bool]], ...] = (got_better, why_not_trained, correct, compare, roll_back)


def measure(folder: Path, tell: Tell, n_turns: int = N_TURNS) -> dict[str, float]:
    """How many of the tasks are done, and the clicks of each."""
    with StubEngine(replies=("It is on its way.", "It arrives on Thursday."), api_key=ENGINE_KEY) as engine:
        settings = parts.settings_in(folder / "state", engine.url, ENGINE_KEY)
        journal = prepare(settings)
        fill(journal, AGENT, n_turns, tell)
        for number in (N_VERSIONS - 1, N_VERSIONS):
            publish.sync(journal, routes_file(settings), AGENT, also_loaded=number)
            engine.loaded[f"{AGENT}@v{number}"] = "here"
        journal.close()
        serving_table.watch(routes_file(settings))
        with parts.running(settings, "ingester"):
            (folder / "browser").mkdir()
            with running(folder / "browser") as port:
                return asyncio.run(_all(port, settings, tell))


async def _all(port: int, settings: Settings, tell: Tell) -> dict[str, float]:
    done: dict[str, int] = {}
    figures: dict[str, float] = {}
    async with tab(port) as page:
        size = {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        await page.call("Emulation.setDeviceMetricsOverride", **size)
        await parts.sign_in(page, settings)
        for task in TASKS:
            await page.open(f"{parts.origin_of(settings)}/a/{AGENT}/overview")
            user = User(page, settings)
            is_done = await task(user) and user.n_clicks <= MOST_CLICKS
            tell(f"{task.__doc__} {'done' if is_done else 'NOT done'} with {user.n_clicks} clicks")
            done[task.__name__] = is_done
            figures[f"clicks_{task.__name__}"] = user.n_clicks
    return {"tasks_done": sum(done.values()), "tasks_clicks": max(figures.values()), **figures}
