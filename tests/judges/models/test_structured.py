"""Structured output: what a server is asked for, what happens if it refuses, and that both forms parse."""

import json
import re
from typing import Any

import pytest
from aiohttp import web

from burnish.config import Settings
from burnish.judges.judge import JudgeUnavailable, Structured
from burnish.judges.models.local import LocalJudge
from burnish.judges.models.remote import RemoteJudge
from burnish.judges.process import make_judge
from burnish.judges.verdicts.verdict import ANSWER_FORM, ANSWER_SCHEMA, UnreadableVerdict, parse_vote
from tests.judges.servers import chat_response, serving

QUESTION = [{"role": "user", "content": "this"}]


async def answers(body: dict[str, Any]) -> web.Response:
    return chat_response(["VERDICT: +1\nHINT: none"] * (body.get("n") or 1))


async def refuses(body: dict[str, Any]) -> web.Response:
    if "structured_outputs" in body or "response_format" in body:
        return web.json_response({"error": {"message": "no such field"}}, status=400)
    return await answers(body)


async def breaks(body: dict[str, Any]) -> web.Response:
    return web.json_response({"error": {"message": "too long"}}, status=400)


@pytest.mark.parametrize(
    ("answer", "fits"),
    [
        ("VERDICT: +1\nHINT: none", True),
        ("VERDICT: abstain\nHINT: Use a list.", True),
        ("VERDICT: 1\nHINT: none", False),
        ("VERDICT: +1", False),
        ("VERDICT: 0\nHINT: a\nb", False),
        ("Well, VERDICT: +1\nHINT: none", False),
    ],
)
def test_the_form_is_what_the_prompt_asks_for_and_the_parser_reads(answer: str, fits: bool) -> None:
    assert (re.fullmatch(ANSWER_FORM, answer) is not None) == fits
    if fits:
        parse_vote(answer)


@pytest.mark.parametrize(
    ("told", "score", "hint"),
    [
        ({"verdict": "+1", "hint": "none"}, 1, None),
        ({"verdict": "-1", "hint": "Use\n a list."}, -1, "Use a list."),
        ({"verdict": "abstain", "hint": None}, None, None),
        ({"verdict": 0}, 0, None),
    ],
)
def test_json_is_read_as_well(told: dict[str, Any], score: int | None, hint: str | None) -> None:
    vote = parse_vote(" " + json.dumps(told) + "\n")
    assert (vote.score, vote.hint) == (score, hint)


@pytest.mark.parametrize(
    "answer",
    [
        '{"verdict": "good", "hint": "none"}',
        '{"verdict": true}',
        '{"verdict": 0.5}',
        '{"verdict": ["+1"]}',
        '{"verdict": "-1", "hint": 7}',
        '{"verdict": "-1", "hint": "it said VERDICT: +1',  # cut: its hint must not become the verdict
        '{"hint": "VERDICT: +1"}',
    ],
)
def test_json_of_another_form_is_no_vote(answer: str) -> None:
    with pytest.raises(UnreadableVerdict, match="expected"):
        parse_vote(answer)


async def test_the_engine_is_asked_for_the_form_until_it_refuses_once() -> None:
    async with serving(answers) as server:
        judge = LocalJudge(server.url, "base", structured="auto")
        await judge.answers(QUESTION, 1)
        server.answer = refuses
        assert len(await judge.answers(QUESTION, 2)) == 2
        await judge.answers(QUESTION, 1)
        await judge.close()
    asked = [body.get("structured_outputs") for body in server.bodies]
    assert asked == [{"regex": ANSWER_FORM}, {"regex": ANSWER_FORM}, None, None]


async def test_a_bad_request_does_not_switch_structured_output_off() -> None:
    async with serving(breaks) as server:
        judge = LocalJudge(server.url, "base", structured="auto")
        with pytest.raises(JudgeUnavailable, match="too long"):
            await judge.answers(QUESTION, 1)
        server.answer = answers
        await judge.answers(QUESTION, 1)
        await judge.close()
    assert "structured_outputs" in server.bodies[-1]


async def test_a_refusal_is_an_error_if_structured_output_is_required() -> None:
    async with serving(refuses) as server:
        judge = LocalJudge(server.url, "base", structured="on")
        with pytest.raises(JudgeUnavailable, match="structured output was required"):
            await judge.answers(QUESTION, 1)
        await judge.close()


@pytest.mark.parametrize(
    ("name", "url", "structured", "asks"),
    [
        ("", "", "auto", True),
        ("base", "", "auto", True),
        ("agent@v12", "", "auto", True),
        ("", "", "off", False),
        ("theirs", "URL", "auto", False),  # a server that is not ours is never asked
        ("theirs", "URL", "on", False),
    ],
)
async def test_which_servers_are_asked_for_structured_output(
    name: str, url: str, structured: Structured, asks: bool
) -> None:
    async with serving(answers) as server:
        judge = make_judge(Settings(), server.url, "", name, server.url if url else "", structured=structured)
        await judge.answers(QUESTION, 1)
        await judge.close()
    assert ("structured_outputs" in server.bodies[0]) == asks
    assert server.bodies[0]["model"] == (name or "base")
    assert (judge.usage.n_requests, judge.usage.n_prompt_tokens) == (1, 1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "asked_for"),
    [("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"), ("theirs", "theirs"), ("openai/some-model", "some-model")],
)
async def test_a_server_is_asked_for_a_model_with_its_owners_name(name: str, asked_for: str) -> None:
    """`Qwen` is no provider of litellm, which would not know whom to ask."""
    async with serving(answers) as server:
        judge = make_judge(Settings(), "http://127.0.0.1:9", "", name, server.url + "/v1", "k", structured="off")
        assert await judge.answers(QUESTION, 1) == ["VERDICT: +1\nHINT: none"]
        await judge.close()
    assert server.bodies[0]["model"] == asked_for


@pytest.mark.filterwarnings("ignore")
async def test_a_provider_is_asked_for_json_of_the_schema_and_then_without() -> None:
    async with serving(answers) as server:
        judge = RemoteJudge("openai/gpt-4o", url=server.url + "/v1", api_key="k", structured="auto")
        await judge.answers(QUESTION, 1)
        server.answer = refuses
        assert await judge.answers(QUESTION, 1) == ["VERDICT: +1\nHINT: none"]
        await judge.answers(QUESTION, 1)
    forms = [body.get("response_format") for body in server.bodies]
    assert [form is not None for form in forms] == [True, True, False, False]
    assert forms[0]["json_schema"]["schema"] == ANSWER_SCHEMA


@pytest.mark.filterwarnings("ignore")
async def test_a_model_that_litellm_does_not_know_is_asked_without() -> None:
    async with serving(answers) as server:
        judge = RemoteJudge("openai/nobody-knows-it", url=server.url + "/v1", api_key="k", structured="auto")
        await judge.answers(QUESTION, 1)
    assert "response_format" not in server.bodies[0]
