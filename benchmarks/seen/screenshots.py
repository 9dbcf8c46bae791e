"""`python -m benchmarks.seen.screenshots`: a picture of every page, light and dark, into `docs/images/`.

The pages run as `burnish up` starts them, over a small journal of the program's own (`example.py`) and an engine that
plays its replies. Chromium shows them at the width of a desk.
"""

import argparse
import asyncio
import base64
import re
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import web
from rich.console import Console

from benchmarks.bars import Tell
from benchmarks.seen import parts
from benchmarks.seen.example import AGENT, MODEL, N_VERSIONS, USERS, Example, fill
from burnish import serving_table
from burnish.adapters.serving import publish
from burnish.adapters.serving.prepare import admin_key_file, prepare, routes_file
from burnish.config import Judge, Settings
from burnish.testing import StubEngine
from tests.browser.chromium import Page, running, tab

FOLDER = Path(__file__).parents[2] / "docs" / "images"
THEMES = ("light", "dark")
WIDTH, TALLEST = 1200, 1300
QUALITY = 42
"""Of WebP. Text stays sharp enough to read."""
ENGINE_KEY = "pictures"
QUESTION = "How do I boil an egg?"
REPLIES = (
    "Put the egg into hot water and boil it for seven to ten minutes.",
    "That is a great question! There are several considerations. Place the egg in boiling water for seven to ten "
    "minutes, and, additionally, consider an ice bath.",
)


class Engine(StubEngine):
    """A stub whose tokens are the example's, so that a reply's tokens read as words."""

    pieces: list[str]

    async def _detokenize(self, request: web.Request) -> web.Response:
        body: dict[str, Any] = await request.json()
        return web.json_response({"prompt": "".join(self.pieces[token] for token in body["tokens"])})


def pages(made: Example) -> dict[str, str]:
    """The path of each page, by the name of its pictures."""
    home = f"/a/{AGENT}"
    names = ("overview", "conversations", "feedback", "labels", "versions", "learner", "judges")
    return {
        "login": "/login",
        **{name: f"{home}/{name}" for name in names},
        "session": f"{home}/sessions/{made.session}",
        "turn": f"{home}/turns/{quote(made.turn)}?tokens=1",
        "version": f"{home}/versions/{N_VERSIONS}",
        "step": f"{home}/learner/{N_VERSIONS}",
        "compare": f"{home}/compare?a={N_VERSIONS}&b={N_VERSIONS - 1}&prompt={quote(QUESTION)}",
        "agents": "/agents",
        "keys": "/keys",
        "people": f"/people?user={USERS[0]}",
        "audit": "/audit",
    }


def take(folder: Path, work: Path, tell: Tell) -> None:
    """Write the pictures into `folder`. `work` takes the state."""
    with ExitStack() as stack:
        engine = Engine(replies=_reply, api_key=ENGINE_KEY, token_delay=0.002)
        stack.enter_context(engine)
        plain = parts.settings_in(work / "state", engine.url, ENGINE_KEY)
        settings = plain.model_copy(update={"judge": Judge(model=MODEL)})
        journal = prepare(settings)
        made = fill(journal, settings)
        engine.pieces = made.pieces
        for number in (N_VERSIONS - 1, N_VERSIONS):
            publish.sync(journal, routes_file(settings), AGENT, also_loaded=number)
            engine.loaded[f"{AGENT}@v{number}"] = "here"
        journal.close()
        serving_table.watch(routes_file(settings))
        stack.enter_context(parts.running(settings))
        (work / "browser").mkdir()
        port = stack.enter_context(running(work / "browser"))
        asyncio.run(_all(port, settings, pages(made), folder, tell))


def _reply(body: dict[str, Any], _: int) -> str:
    return REPLIES[0 if body["model"].endswith(f"@v{N_VERSIONS}") else 1]


async def _all(port: int, settings: Settings, paths: dict[str, str], folder: Path, tell: Tell) -> None:
    key = admin_key_file(settings).read_text(encoding="utf-8").strip()
    async with tab(port) as page:
        for theme in THEMES:
            await page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
            for name, path in paths.items():
                await _size(page, 800)
                await page.open(parts.origin_of(settings) + path)
                await _BEFORE.get(name, _nothing)(page)
                file = folder / name / f"{theme}.webp"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(await _picture(page))
                tell(f"{file.relative_to(folder)}: {file.stat().st_size / 1000:.0f} kB")
                if name == "login":
                    await _sign_in(page, key)


async def _picture(page: Page) -> bytes:
    """The page as high as it is, up to `TALLEST`."""
    height = min(TALLEST, int(await page.value("document.documentElement.scrollHeight")))
    await _size(page, height)
    shot = await page.call("Page.captureScreenshot", format="webp", quality=QUALITY)
    return base64.b64decode(shot["data"])


async def _size(page: Page, height: int) -> None:
    size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
    await page.call("Emulation.setDeviceMetricsOverride", **size)


async def _sign_in(page: Page, key: str) -> None:
    await page.value("document.querySelector('#key').focus()")
    await page.write(key)
    await page.press("Enter")
    await page.until("location.pathname.endsWith('/overview')")


async def _compared(page: Page) -> None:
    """Both replies are there, and the vote is open."""
    await page.click("[data-compare] button")
    await page.until("!document.querySelector('[data-votes]').hidden")


async def _nothing(page: Page) -> None:
    """The page is shown as it comes."""


_BEFORE: dict[str, Callable[[Page], Any]] = {"compare": _compared}


def main() -> None:
    """Read the command line and take the pictures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.seen.screenshots", description=(__doc__ or ""))
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pictures go")
    given = parser.parse_args()
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="burnish-pictures-") as work:
        take(given.folder, Path(work), lambda line: console.print(line, style="dim", highlight=False))
    total = sum(file.stat().st_size for file in given.folder.rglob("*.webp"))
    console.print(f"{total / 1e6:.2f} MB in {re.sub(r'^.*/docs/', 'docs/', str(given.folder))}")


if __name__ == "__main__":
    main()
