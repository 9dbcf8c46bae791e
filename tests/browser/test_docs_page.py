"""`/docs` in a real browser: Swagger UI comes from the gateway, shows the document and needs nothing that its policy
forbids.
"""

from pathlib import Path

import pytest

from burnish.config import Settings
from burnish.journal import Journal
from burnish.server.gateway.admin import admin_app
from burnish.testing import StubEngine
from tests.browser.chromium import running, tab
from tests.journals import journal, migrated_file, sqlite_url
from tests.server.gateway.gateways import ENGINE_KEY, serve

__all__ = ["journal", "migrated_file", "sqlite_url"]
pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]  # a first run installs
NOTE = "window.refused = []; addEventListener('securitypolicyviolation', e => refused.push(e.effectiveDirective))"


async def test_the_document_is_shown_without_another_host(tmp_path: Path, journal: Journal) -> None:
    stub, behind = StubEngine(api_key=ENGINE_KEY), admin_app(Settings(state_dir=tmp_path), journal)
    with stub, serve(tmp_path / "state", stub, fallback=behind) as gateway, running(tmp_path) as port:
        async with tab(port) as page:
            await page.call("Page.addScriptToEvaluateOnNewDocument", source=NOTE)
            await page.call("Page.enable")
            await page.open(f"{gateway.url}/docs")
            await page.until("document.querySelectorAll('.opblock').length > 30")
            await page.value("document.querySelector('.opblock-summary-control').click()")
            await page.until("document.querySelector('.opblock.is-open .try-out__btn')")
            assert await page.value("refused") == []
            loaded = await page.value("performance.getEntriesByType('resource').map(e => new URL(e.name).origin)")
            assert set(loaded) == {gateway.url}
