"""The thumbs of docs/widget/ in a real browser, against a real gateway: what is clicked is in the journal."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.tables import FeedbackRow, JudgeJob
from burnish.server.gateway.admin import admin_app
from burnish.server.ingest.ingester import Ingester
from burnish.testing import Scene, Script, Scripted, ScriptedEngine, Step
from tests.browser import site
from tests.browser.chromium import Page, running, tab
from tests.journals import journal, migrated_file, sqlite_url
from tests.server.gateway.gateways import ENGINE_KEY, Running, serve

__all__ = ["journal", "migrated_file", "sqlite_url"]
pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]  # a first run installs
SCRIPT = Script([Scene("walk", [Step([Scripted("I saw a heron by the river: @mark")])])])
UP, DOWN = ".burnish-up", ".burnish-down"
PICTURES = os.environ.get("BURNISH_PICTURES")


@dataclass
class Visit:
    """A reader of a page with one reply on it."""

    page: Page
    gateway: Running
    journal: Journal
    folder: Path
    origin: str
    reply: str

    async def open(self, target: str | None = None, token: str | None = None, url: str | None = None) -> None:
        """Load the page, by default with a token for the reply that it shows."""
        target = target or self.reply
        token = token or await asyncio.to_thread(
            site.vote_token, self.gateway.url, self.gateway.secrets["voter"], target
        )
        text = site.page(url or self.gateway.url, target, token, "I saw a heron by the river.")
        (self.folder / "index.html").write_text(text, encoding="utf-8")
        await self.page.open(f"{self.origin}/index.html")

    async def shows(self, place: str, words: str) -> None:
        await self.page.until(f"document.querySelector('.burnish-{place}').textContent.includes({words!r})")

    async def pressed(self) -> list[str]:
        return list(await self.page.value("[...document.querySelectorAll('[aria-pressed=true]')].map(e => e.title)"))

    async def focus(self) -> str:
        return str(
            await self.page.value("document.activeElement.getAttribute('aria-label') || document.activeElement.tagName")
        )

    async def picture(self, name: str) -> None:
        """Kept where BURNISH_PICTURES says, so that a person can look."""
        if PICTURES:
            shot = await self.page.picture()
            await asyncio.to_thread((Path(PICTURES) / f"{name}.png").write_bytes, shot)

    def votes(self) -> list[FeedbackRow]:
        threading.Event().wait(0.1)  # the ingester leaves the last moment alone
        Ingester(self.journal, self.gateway.settings.segments_dir, session_timeout=3600.0).run_once()
        with self.journal.read() as session:
            return list(session.query(FeedbackRow).all())


@pytest.fixture
async def visit(request: pytest.FixtureRequest, tmp_path: Path, journal: Journal) -> AsyncIterator[Visit]:
    """`indirect` parametrisation with "stranger" leaves the page's origin out of the gateway's list."""
    state, pages, profile = (tmp_path / name for name in ("state", "pages", "browser"))
    pages.mkdir()
    profile.mkdir()
    async with AsyncExitStack() as stack:
        engine = stack.enter_context(ScriptedEngine(script=SCRIPT, api_key=ENGINE_KEY, loaded={"agent@v2": "/a/2"}))
        origin = stack.enter_context(site.served(pages))
        origins = () if getattr(request, "param", "") == "stranger" else (origin,)
        behind = admin_app(Settings(state_dir=state), journal)
        gateway = stack.enter_context(serve(state, engine, behind, allowed_origins=origins))
        reply, _ = await asyncio.to_thread(site.ask, gateway.url, gateway.secrets["talker"], "scene:walk")
        page = await stack.enter_async_context(tab(stack.enter_context(running(profile))))
        yield Visit(page, gateway, journal, pages, origin, reply)


async def test_a_thumb_up_is_a_users_vote_on_that_reply(visit: Visit) -> None:
    await visit.open()
    assert await visit.pressed() == []
    await visit.picture("before")
    await visit.page.click(UP)
    await visit.shows("done", "Thank you")
    assert await visit.pressed() == ["Good answer"]
    await visit.picture("up")
    (vote,) = visit.votes()
    assert (vote.interaction_id, vote.rating, vote.source) == (visit.reply, 1.0, "user")


async def test_a_thumb_down_asks_what_was_wrong_and_another_vote_replaces_it(visit: Visit) -> None:
    await visit.open()
    await visit.page.click(DOWN)
    await visit.page.until("document.activeElement.tagName === 'TEXTAREA'")
    await visit.picture("down")
    (vote,) = visit.votes()
    assert (vote.rating, vote.comment) == (-1.0, None), "the vote counts without a comment"
    await visit.page.write("Ein Reiher 🪶 ist kein <b>Kranich</b>")
    await visit.page.click("form button")
    await visit.shows("done", "comment")
    assert await visit.page.value("document.querySelector('form').hidden")
    assert await visit.focus() == "Bad answer"
    await visit.picture("commented")
    (vote,) = visit.votes()
    assert (vote.interaction_id, vote.rating) == (visit.reply, -1.0)
    assert vote.comment == "Ein Reiher 🪶 ist kein <b>Kranich</b>"
    with visit.journal.read() as session:
        assert session.get(JudgeJob, f"{visit.reply}|feedback") is not None
    await visit.page.click(UP)
    await visit.page.until("document.querySelector('.burnish-up').getAttribute('aria-pressed') === 'true'")
    assert await visit.pressed() == ["Good answer"]
    (vote,) = visit.votes()
    assert (vote.rating, vote.comment) == (1.0, None)


async def test_it_works_without_a_mouse_and_without_sight(visit: Visit) -> None:
    await visit.open()
    told = await visit.page.told()
    assert ("group", "Rate this answer") in told
    assert [name for role, name in told if role == "button"] == ["Good answer", "Bad answer"]
    for expected in ("Good answer", "Bad answer"):
        await visit.page.press("Tab")
        assert await visit.focus() == expected
    await visit.page.press(" ")
    await visit.page.until("document.activeElement.tagName === 'TEXTAREA'")
    assert ("textbox", "What was wrong? (optional)") in await visit.page.told()
    await visit.page.write("too long")
    await visit.page.press("Tab")
    await visit.page.press("Enter")
    await visit.shows("done", "comment")
    assert ("status", "") in [(role, "") for role, _ in await visit.page.told()]
    (vote,) = visit.votes()
    assert (vote.rating, vote.comment) == (-1.0, "too long")


async def test_a_token_that_does_not_count_is_told_and_nothing_is_marked(visit: Visit) -> None:
    await visit.open(token="bft-altered.token")
    await visit.page.click(DOWN)
    await visit.shows("failure", "was not saved. It is too late to rate this answer here")
    assert await visit.pressed() == []
    assert await visit.page.value("document.querySelector('form').hidden")
    assert "alert" in [role for role, _ in await visit.page.told()]
    await visit.picture("refused")
    assert visit.votes() == []


async def test_what_the_server_says_is_shown_as_text(visit: Visit) -> None:
    hostile = "<img src=x onerror=document.title='taken'>"
    token = await asyncio.to_thread(site.vote_token, visit.gateway.url, visit.gateway.secrets["voter"], hostile)
    await visit.open(token=token)
    await visit.page.click(UP)
    await visit.shows("failure", hostile)
    assert await visit.page.value("document.querySelectorAll('img').length") == 0
    assert await visit.page.value("document.title") == "An agent"


async def test_a_gateway_that_is_away_is_told_and_the_next_try_counts(visit: Visit) -> None:
    await visit.open(url="http://127.0.0.1:9")
    await visit.page.click(UP)
    await visit.shows("failure", "cannot be reached")
    assert await visit.pressed() == []
    await visit.picture("away")
    await visit.page.value(f"document.querySelector('.burnish-thumbs').dataset.gateway = '{visit.gateway.url}/'")
    await visit.page.click(UP)
    await visit.shows("done", "Thank you")
    assert await visit.page.value("document.querySelector('.burnish-failure').textContent") == ""
    assert [vote.rating for vote in visit.votes()] == [1.0]


@pytest.mark.parametrize("visit", ["stranger"], indirect=True)
async def test_a_page_of_a_foreign_origin_cannot_vote(visit: Visit) -> None:
    await visit.open()
    await visit.page.click(UP)
    await visit.shows("failure", "cannot be reached")
    assert visit.votes() == []


async def test_thumbs_that_a_page_adds_later(visit: Visit) -> None:
    await visit.open()
    added: Any = """(() => {
        const copy = document.querySelector('.burnish-thumbs').cloneNode(false);
        delete copy.dataset.ready;
        copy.id = 'later';
        document.body.append(copy);
        burnishThumbs(copy);
        burnishThumbs(copy);
        return document.querySelectorAll('#later button.burnish-up').length;
    })()"""
    assert await visit.page.value(added) == 1
    await visit.page.click("#later .burnish-up")
    await visit.page.until("document.querySelector('#later .burnish-done').textContent.includes('Thank you')")
    assert [vote.interaction_id for vote in visit.votes()] == [visit.reply]
