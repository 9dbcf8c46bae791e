"""What an answer tells a browser: every page has a policy that lets its own scripts run and nothing else."""

import asyncio
import base64
import hashlib
import re

import httpx
import pytest

from benchmarks.security.world import asking, world
from burnish.server.gateway.app import PAGES
from burnish.server.gateway.http.pages import policy_of


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, httpx.Response]:
    """By path."""
    with world(tmp_path_factory.mktemp("pages")) as made:

        async def ask() -> dict[str, httpx.Response]:
            async with asking(made) as client:
                paths = (*PAGES, "/healthz", "/v1/models", "/nowhere", "/admin/agents")
                return {path: await client.get(path) for path in paths}

        return asyncio.run(ask())


def test_every_answer_is_what_it_says_it_is(answers: dict[str, httpx.Response]) -> None:
    assert {answer.headers["x-content-type-options"] for answer in answers.values()} == {"nosniff"}


@pytest.mark.parametrize("path", sorted(PAGES))
def test_a_page_runs_its_own_scripts_alone_and_in_no_frame(answers: dict[str, httpx.Response], path: str) -> None:
    answer = answers[path]
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy.partition("script-src")[2].partition(";")[0]
    inline = re.findall(r"<script>(.*?)</script>", answer.text, re.DOTALL)
    for script in inline:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert bool(inline) == (path != "/openapi.json")
    sources = re.findall(r'(?:src|href)="(https?://[^/"]+)', answer.text)
    assert all(source in policy for source in sources)
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_every_page_in_html_is_a_page(answers: dict[str, httpx.Response]) -> None:
    html = {path for path, answer in answers.items() if answer.headers["content-type"].startswith("text/html")}
    assert html == PAGES - {"/openapi.json"}


def test_a_script_that_is_not_in_the_page_is_not_allowed() -> None:
    assert "sha256" not in policy_of(b"<p>x</p>")
    assert policy_of(b"<script>a()</script>") != policy_of(b"<script>b()</script>")
