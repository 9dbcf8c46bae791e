"""Somebody with a browser in front of the pages, without a network."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from burnish.server.ui.admin_api import make_http
from burnish.server.ui.site import Site
from tests.server.ui.fake_api import ORIGIN, FakeApi


@asynccontextmanager
async def visiting(
    api: FakeApi | httpx.AsyncBaseTransport, key: str | None = "sk-1", **site: Path
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the pages, signed in with `key` (None: not signed in)."""
    transport = api.transport() if isinstance(api, FakeApi) else api
    async with make_http("http://gateway", transport) as http:
        app = Site(http, **site).app()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN) as client:
            if key is not None:
                answer = await post(client, "/login", key=key)
                assert answer.status_code == 303, answer.text
            yield client


async def post(client: httpx.AsyncClient, path: str, /, **fields: Any) -> httpx.Response:
    """A form as a browser sends it."""
    return await client.post(path, data=fields, headers={"origin": ORIGIN, "accept": "text/html"})
