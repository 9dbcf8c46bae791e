"""The two clients for a judging model, against real HTTP: answers, and every kind of failure as one error."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from burnish.errors import SAID
from burnish.judges.judge import JudgeRefused, JudgeUnavailable
from burnish.judges.models.local import LOW_PRIORITY, LocalJudge
from burnish.judges.models.remote import RemoteJudge
from tests.judges.servers import chat_response, serving

QUESTION = [{"role": "system", "content": "judge"}, {"role": "user", "content": "this"}]


async def all_good(body: dict[str, Any]) -> web.Response:
    return chat_response([f"vote {i}" for i in range(body.get("n") or 1)])


async def fails(body: dict[str, Any]) -> web.Response:
    return web.json_response({"error": {"message": "out of memory"}}, status=500)


async def hangs(body: dict[str, Any]) -> web.Response:
    await asyncio.sleep(60)
    return chat_response(["late"])


async def talks_nonsense(body: dict[str, Any]) -> web.Response:
    return web.Response(text="<html>a proxy's page</html>", content_type="text/html")


async def breaks_json(body: dict[str, Any]) -> web.Response:
    return web.Response(text="{", content_type="application/json")


async def answers_something_else(body: dict[str, Any]) -> web.Response:
    return web.json_response({"object": "list", "data": []})


async def cuts(body: dict[str, Any]) -> web.Response:
    raise ConnectionResetError


FAILURES = [fails, hangs, talks_nonsense, breaks_json, answers_something_else, cuts]


async def test_the_local_judge_asks_for_all_votes_at_once() -> None:
    async with serving(all_good) as server:
        judge = LocalJudge(server.url + "/v1", "base", api_key="secret", temperature=0.5, max_tokens=32)
        assert await judge.answers(QUESTION, 3) == ["vote 0", "vote 1", "vote 2"]
        assert await judge.answers(QUESTION, 1) == ["vote 0"]
        await judge.close()
    expected = {
        "model": "base",
        "messages": QUESTION,
        "n": 3,
        "temperature": 0.5,
        "max_tokens": 32,
        "priority": LOW_PRIORITY,
    }
    assert server.bodies[0] == expected
    assert server.headers[0]["Authorization"] == "Bearer secret"


async def test_an_answer_without_text_is_an_empty_one() -> None:
    async def silent(body: dict[str, Any]) -> web.Response:
        return chat_response([None, "vote"])

    async with serving(silent) as server:
        judge = LocalJudge(server.url, "base")
        assert await judge.answers(QUESTION, 2) == ["", "vote"]
        await judge.close()


@pytest.mark.parametrize("failure", FAILURES)
async def test_every_failure_of_the_local_judge_is_one_error(failure: Any) -> None:
    async with serving(failure) as server:
        judge = LocalJudge(server.url, "base", timeout=0.5)
        with pytest.raises(JudgeUnavailable, match=r"the judge (answered|did not answer)"):
            await judge.answers(QUESTION, 3)
        await judge.close()


@pytest.mark.parametrize(("status", "is_refusal"), [(400, True), (413, True), (404, False), (429, False), (500, False)])
async def test_a_refused_question_is_told_from_a_server_that_fails(status: int, is_refusal: bool) -> None:
    async def refuses(body: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": "the maximum context length is 128"}}, status=status)

    async with serving(refuses) as server:
        judge = LocalJudge(server.url, "base")
        with pytest.raises(JudgeUnavailable) as raised:
            await judge.answers(QUESTION, 1)
        assert isinstance(raised.value, JudgeRefused) is is_refusal
        assert str(raised.value) == f"the judge answered {status}{SAID}the maximum context length is 128"
        await judge.close()


async def test_nobody_listening_is_the_same_error() -> None:
    judge = LocalJudge("http://127.0.0.1:9", "base", timeout=2.0)
    with pytest.raises(JudgeUnavailable, match="did not answer"):
        await judge.answers(QUESTION, 1)
    await judge.close()


async def test_the_local_judge_recovers() -> None:
    replies = [fails, all_good]

    async def first_fails(body: dict[str, Any]) -> web.Response:
        return await replies.pop(0)(body)

    async with serving(first_fails) as server:
        judge = LocalJudge(server.url, "base")
        with pytest.raises(JudgeUnavailable, match=r"answered 500; it said: out of memory"):
            await judge.answers(QUESTION, 1)
        assert await judge.answers(QUESTION, 1) == ["vote 0"]
        await judge.close()


@pytest.mark.filterwarnings("ignore")
async def test_the_remote_judge_asks_once_per_vote_and_never_again() -> None:
    """litellm's and its client's own retries would multiply with the worker's."""
    n_asked = 0

    async def every_other(body: dict[str, Any]) -> web.Response:
        nonlocal n_asked
        n_asked += 1
        return chat_response(["vote"]) if n_asked % 2 else await fails(body)

    async with serving(every_other) as server:
        judge = RemoteJudge("openai/some-model", url=server.url + "/v1", api_key="secret", timeout=20.0)
        assert await judge.answers(QUESTION, 4) == ["vote", "vote"]
        await judge.close()
    assert n_asked == 4
    assert {body["model"] for body in server.bodies} == {"some-model"}
    assert {body["messages"][1]["content"] for body in server.bodies} == {"this"}
    assert server.headers[0]["Authorization"] == "Bearer secret"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("failure", [fails, hangs, answers_something_else])
async def test_a_remote_judge_that_fails_altogether_is_one_error(failure: Any) -> None:
    async with serving(failure) as server:
        judge = RemoteJudge("openai/some-model", url=server.url + "/v1", api_key="secret", timeout=1.0)
        with pytest.raises(JudgeUnavailable, match="openai/some-model did not answer"):
            await judge.answers(QUESTION, 2)
        await judge.close()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("message", "is_refusal"),
    [("This model's maximum context length is 128 tokens.", True), ("there is no such model", False)],
)
async def test_a_remote_judge_refuses_only_what_is_too_long(message: str, is_refusal: bool) -> None:
    """Any other 400 may be a mistake in the settings, which says nothing about the question."""

    async def refuses(body: dict[str, Any]) -> web.Response:
        error = {"message": message, "type": "invalid_request_error", "code": None}
        return web.json_response({"error": error}, status=400)

    async with serving(refuses) as server:
        judge = RemoteJudge("openai/some-model", url=server.url + "/v1", api_key="secret", timeout=20.0)
        with pytest.raises(JudgeUnavailable) as raised:
            await judge.answers(QUESTION, 1)
        assert isinstance(raised.value, JudgeRefused) is is_refusal
        await judge.close()
