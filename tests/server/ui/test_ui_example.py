"""Every page over a journal that looks like real use, by the real routes: versions, a watch by slice, costs, votes."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks.seen.example import AGENT, MODEL, N_VERSIONS, Example, fill
from benchmarks.seen.screenshots import pages
from burnish.adapters.serving.prepare import admin_key_file, prepare
from burnish.config import Judge, Settings
from burnish.server.gateway.admin import admin_app
from burnish.server.ui.pages import PAGES
from tests.server.ui.visitors import visiting

SAID = {
    "overview": ["v15 is being trained", "Yes:", "Worst in <b>", "as a table"],
    "conversations": ["ready for the learner", "never trained"],
    "session": ["reply of v"],
    "turn": ["less likely a token", "nats", "Effective reward"],
    "feedback": ["demonstration", "What people thought of each version"],
    "labels": ["Cannot tell"],
    "versions": ["live", "refused", "rolled back", "fell in the slice"],
    "version": ["By slice, in its watch", "By slice, on held-out turns", "won turns", "People preferred it to", "lost"],
    "learner": ["loss", "published"],
    "step": ["likelier a token", "Monitors"],
    "judges": ["fit", "People agree with it", "People agree with one another", "comparisons for the gate", "By day"],
    "agents": ["coder", "learner.min_rows = 8"],
    "keys": ["phone app"],
    "audit": ["rollback"],
}
WITHOUT_PICTURE = {"/", "/go"}


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, Example, httpx.ASGITransport]]:
    settings = Settings(state_dir=tmp_path_factory.mktemp("example"), judge=Judge(model=MODEL))
    journal = prepare(settings)
    made = fill(journal, settings)
    yield settings, made, httpx.ASGITransport(admin_app(settings, journal))
    journal.close()


@pytest.mark.parametrize("name", sorted(set(pages(Example())) - {"login"}))
async def test_each_page_shows_the_example(name: str, example: tuple[Settings, Example, httpx.ASGITransport]) -> None:
    settings, made, gateway = example
    key = admin_key_file(settings).read_text(encoding="utf-8").strip()
    async with visiting(gateway, key) as client:
        answer = await client.get(pages(made)[name])
    assert answer.status_code == 200, answer.text[-2000:]
    assert [words for words in SAID.get(name, []) if words.lower() not in answer.text.lower()] == []


def test_each_page_has_a_picture() -> None:
    """A route is a page's if it is asked for with GET."""
    routes = [path for path, methods, _ in PAGES if "GET" in methods and path not in WITHOUT_PICTURE]
    shown = {path.partition("?")[0] for path in pages(Example(turn="t", session="s")).values()}
    filled = {
        path.replace("{agent}", AGENT)
        .replace("{turn:path}", "t")
        .replace("{session:path}", "s")
        .replace("{version:int}", str(N_VERSIONS))
        for path in routes
    }
    assert filled == shown - {"/login"}


def test_pictures_are_there_in_both_themes_are_small_and_are_shown(pytestconfig: pytest.Config) -> None:
    docs = Path(pytestconfig.rootpath) / "docs"
    found = {file.relative_to(docs / "images").as_posix(): file.stat().st_size for file in docs.rglob("images/*/*")}
    assert set(found) == {f"{name}/{theme}.webp" for name in pages(Example()) for theme in ("light", "dark")}
    assert sum(found.values()) < 1_500_000
    text = (docs / "how-to" / "ui-pictures.md").read_text(encoding="utf-8")
    assert [name for name in found if f"../images/{name}#only-" not in text] == []
