"""What an answer tells a browser: every page has a policy that lets this server's own scripts run and nothing else."""

import asyncio
import re
from urllib.parse import urljoin

import httpx
import pytest

from benchmarks.security.world import asking, world
from burnish.server.gateway.access.matrix import declared
from burnish.server.gateway.app import PAGES

FREE = [path for path in sorted(PAGES) if path != "/openapi.json"]
Answers = dict[str, httpx.Response]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """By path: every route that can be read without a body."""
    with world(tmp_path_factory.mktemp("pages")) as made:
        paths = {route.path for route in declared(made.behind) if route.method == "GET"} | {"/nowhere"}

        async def ask() -> Answers:
            async with asking(made) as client:
                return {path: await client.get(re.sub("{.*?}", "1", path)) for path in sorted(paths)}

        return asyncio.run(ask())


def test_every_answer_is_what_it_says_it_is(answers: Answers) -> None:
    assert len(answers) > 30
    assert {answer.headers["x-content-type-options"] for answer in answers.values()} == {"nosniff"}


def test_every_page_has_a_strict_policy_and_is_in_no_frame(answers: Answers) -> None:
    kinds = {path: answer.headers["content-type"].partition(";")[0] for path, answer in answers.items()}
    shown = {path for path, kind in kinds.items() if kind not in ("application/json", "text/plain")}
    assert shown == set(FREE) and answers.keys() >= PAGES
    for path in PAGES:
        headers = answers[path].headers
        assert answers[path].status_code == 200
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
        assert {*" ".join(policy.values()).split()} == {"'none'", "'self'", "data:"}
        assert (headers["x-frame-options"], headers["referrer-policy"]) == ("DENY", "no-referrer")


def test_the_page_of_the_document_needs_no_other_host_and_no_script_of_its_own(answers: Answers) -> None:
    page = answers["/docs"].text
    assert "<script>" not in page and "style=" not in page and "<style" not in page
    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert {urljoin("/docs", name) for name in named} == set(FREE) - {"/docs"}
    assert "openapi.json" in answers["/docs/start.js"].text
