"""The pages in a real browser: axe finds nothing serious, nothing is wider than a phone, and single keys work."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp

from burnish.server.ui.admin_api import make_http
from burnish.server.ui.site import Site
from tests.browser.axe import violations
from tests.browser.chromium import Page, running, tab
from tests.server.ui.fake_api import FakeApi

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]  # a first run installs
PATHS = [
    *(f"/a/agent/{page}" for page in ("overview", "conversations", "feedback", "labels", "versions", "compare")),
    *(f"/a/agent/{page}" for page in ("learner", "judges", "turns/chatcmpl-1", "versions/3", "learner/3")),
    *("/a/agent/sessions/s-1", "/agents", "/keys", "/people?user=ann", "/audit", "/a/agent/turns/none"),
    "/a/agent/turns/chatcmpl-1?tokens=1",
]


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """The URL of the pages, in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, ws="none", lifespan="off"))
    thread = Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the pages did not start"
        Event().wait(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


class Seen:
    """A signed-in tab. `api` is what the pages ask."""

    def __init__(self, page: Page, origin: str, api: FakeApi) -> None:
        self.page, self.origin, self.api = page, origin, api

    async def open(self, path: str) -> None:
        await self.page.open(self.origin + path)

    async def key(self, key: str) -> None:
        await self.page.call("Input.dispatchKeyEvent", type="keyDown", text=key, key=key)
        await self.page.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def looks(self, width: int, theme: str) -> None:
        size: dict[str, Any] = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.page.call("Emulation.setDeviceMetricsOverride", **size)
        await self.page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    async def sent(self, n: int) -> Any:
        """The newest of `n` things that the pages have sent."""
        for _ in range(500):
            if len(self.api.sent) >= n:
                return self.api.sent[-1]
            await asyncio.sleep(0.02)
        pytest.fail(f"sent {self.api.sent}")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
async def seen(port: int) -> AsyncIterator[Seen]:
    api = FakeApi()
    with served(Site(make_http("http://gateway", api.transport())).app()) as origin:
        async with tab(port) as page:
            await page.open(f"{origin}/login")
            await page.value("document.querySelector('#key').focus()")
            await page.write("sk-1")
            await page.press("Enter")
            await page.until("location.pathname.endsWith('/overview')")
            yield Seen(page, origin, api)


@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")])
async def test_no_page_has_a_serious_violation_or_is_too_wide(seen: Seen, width: int, theme: str) -> None:
    await seen.looks(width, theme)
    for path in PATHS:
        await seen.open(path)
        assert await violations(seen.page) == [], path
        assert await seen.page.value("document.documentElement.scrollWidth <= innerWidth"), path


async def test_one_key_labels_a_turn(seen: Seen) -> None:
    await seen.open("/a/agent/labels")
    await seen.key("-")
    assert await seen.sent(1) == ("/v1/feedback", {"target": "chatcmpl-1", "rating": -1.0})
    await seen.page.until("document.querySelector('.flash')")


async def test_keys_do_nothing_while_somebody_writes(seen: Seen) -> None:
    await seen.open("/a/agent/turns/chatcmpl-1")
    await seen.page.value("document.querySelector('[name=comment]').focus()")
    await seen.key("+")
    await seen.key("-")
    assert await seen.page.value("document.querySelector('[name=comment]').value") == "+-"
    assert seen.api.sent == []


async def test_two_replies_are_compared_by_key(seen: Seen) -> None:
    await seen.open("/a/agent/compare?a=3&b=1")
    await seen.page.value("document.querySelector('textarea').focus()")
    await seen.page.write("hello")
    await seen.page.click("[data-compare] button")
    await seen.page.until("!document.querySelector('[data-votes]').hidden")
    assert (
        await seen.page.value("[...document.querySelectorAll('[data-text]')].map(e => e.textContent).join()")
        == "hel,hel"
    )
    assert await seen.page.value("document.querySelector('[data-version]').hidden")  # blind until the vote
    await seen.key("b")
    assert await seen.sent(3) == ("/v1/feedback/batch", {"feedback": [{"target": "chatcmpl-9", "correction": "hel"}]})
    await seen.page.until("document.querySelector('[data-tally]').textContent.includes('Recorded')")
    models = {body["model"] for sent, body in seen.api.sent if sent == "/v1/chat/completions"}
    assert models == {"agent@v3", "agent@v1"}


async def test_the_overview_is_live_and_the_theme_is_remembered(seen: Seen) -> None:
    await seen.open("/a/agent/overview")
    status = seen.api.answers["/admin/agents/agent/status"]
    seen.api.answers["/admin/agents/agent/status"] = {
        **status,
        "learning": {"sentence": "v4 is being trained", "is_alarm": False},
    }
    await seen.page.until("document.querySelector('.sentence').textContent.includes('v4 is being trained')")
    await seen.looks(1440, "light")
    await seen.page.click("[data-theme-toggle]")
    await seen.open("/a/agent/versions")
    assert await seen.page.value("document.documentElement.dataset.theme") == "dark"


async def test_what_opens_to_write_in_has_the_focus(seen: Seen) -> None:
    await seen.open("/a/agent/turns/chatcmpl-1")
    await seen.key("c")
    await seen.page.until("document.activeElement.name === 'correction'")
    await seen.open("/a/agent/compare")
    await seen.page.until("document.activeElement.name === 'prompt'")


async def test_a_keyboard_walks_a_list(seen: Seen) -> None:
    await seen.open("/a/agent/conversations")
    await seen.key("j")
    await seen.page.press("Enter")
    await seen.page.until("location.pathname.endsWith('/turns/chatcmpl-1')")
