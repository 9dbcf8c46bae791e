"""`/good`, `/bad`, `/undo` in a conversation: answered in every dialect, never asked of the engine, kept out of it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gateways import ENGINE_KEY, Running, events, serve, text_of

from burnish import serving_table
from burnish.config import Journal
from burnish.keys import Scope, mint
from burnish.server.gateway.feedback.commands import Command, command_of, look
from burnish.testing import StubEngine

Messages = list[dict[str, Any]]
ASKED = {"role": "user", "content": "hello there"}
REPLIED = {"role": "assistant", "content": "hi"}
NOTED = {"role": "assistant", "content": "[burnish] Noted: the last reply was bad."}


def said(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def looked(*messages: dict[str, Any]) -> tuple[Messages, Command | None] | None:
    found = look(msgspec.Raw(msgspec.json.encode(messages)))
    return None if found is None else (found.messages, found.last)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/good", Command("/good")),
        (" /good\n", Command("/good")),
        ("/Good", Command("/good")),
        ("/bad too long", Command("/bad", "too long")),
        ("/bad\ntoo\nlong", Command("/bad", "too\nlong")),
        ("/undo", Command("/undo")),
        ([{"type": "text", "text": "/bad"}], Command("/bad")),
        ("<system-reminder>be brief</system-reminder>\n/bad so", Command("/bad", "so")),
        (
            [{"type": "text", "text": "/bad"}, {"type": "text", "text": "<system-reminder>x</system-reminder>"}],
            Command("/bad"),
        ),
        ("<command-message>good</command-message>\n<command-name>/good</command-name>\n/good", Command("/good")),
        ('"/bad too long"', Command("/bad", "too long")),
        ('/bad "too long"', Command("/bad", "too long")),
        ('"', None),
        ("<system-reminder>never closed /good", None),
        ("/goodness", None),
        ("/undo everything", None),
        ("what does /good do?", None),
        ("/good/bad", None),
        ("", None),
        (None, None),
        ([{"type": "text", "text": "/bad"}, {"type": "image_url", "image_url": {"url": "data:,"}}], None),
        ("/bad " + "x" * 70_000, None),
    ],
)
def test_a_command_is_the_whole_message_of_a_user(text: Any, expected: Command | None) -> None:
    assert command_of(said(text)) == expected
    assert command_of({"role": "assistant", "content": text}) is None


def test_a_command_goes_with_its_answer_and_nothing_else_goes() -> None:
    assert looked(ASKED, REPLIED, said("on")) is None
    assert looked(ASKED, REPLIED, said("/bad")) == ([ASKED, REPLIED], Command("/bad"))
    assert looked(ASKED, REPLIED, said("/bad"), NOTED, said("on")) == ([ASKED, REPLIED, said("on")], None)
    assert looked(ASKED, REPLIED, said("/bad"), NOTED, said("/undo")) == ([ASKED, REPLIED], Command("/undo"))
    assert looked(ASKED, REPLIED, said("/bad"), said("on")) == ([ASKED, REPLIED, said("on")], None)


def test_messages_of_the_system_behind_a_command_do_not_count() -> None:
    place = {"role": "system", "content": "# Environment"}
    assert looked(ASKED, REPLIED, said("/bad"), place) == ([ASKED, REPLIED, place], Command("/bad"))
    assert looked(ASKED, REPLIED, said("/bad"), place, NOTED, said("on")) == ([ASKED, REPLIED, place, said("on")], None)


def test_a_command_that_a_model_has_answered_stays() -> None:
    assert looked(said("/good"), REPLIED, said("on")) is None
    assert looked(said("/good"), REPLIED, said("/bad")) == ([said("/good"), REPLIED], Command("/bad"))


@pytest.fixture
def talking(tmp_path: Path) -> Iterator[Running]:
    stub = StubEngine(api_key=ENGINE_KEY, loaded={"agent@v1": "/a/1", "agent@v2": "/a/2"})
    with stub, serve(tmp_path, stub, commands=("agent",)) as running:
        secret, key = mint([Scope.INFERENCE, Scope.FEEDBACK])
        running.secrets["user"] = secret
        path = running.settings.run_dir / "routes.json"
        serving_table.update(path, lambda table: replace(table, keys={**table.keys, key.digest: key}))
        yield running


def conversation(*more: dict[str, Any]) -> Messages:
    return [ASKED, REPLIED, *more]


def remarks(running: Running) -> list[Any]:
    return [(turn.remark, turn.messages) for turn in running.interactions if turn.remark is not None]


def n_asked(running: Running) -> int:
    return len(running.engine.requests)


def test_a_chat_is_answered_by_the_gateway(talking: Running) -> None:
    answer = talking.chat("user", messages=conversation(said("/bad too long")))
    assert answer.status_code == 200
    tree = answer.json()
    assert tree["choices"][0]["message"] == {
        "role": "assistant",
        "content": "[burnish] Noted: the last reply was bad.",
    }
    assert (tree["object"], tree["choices"][0]["finish_reason"]) == ("chat.completion", "stop")
    streamed = talking.stream("user", messages=conversation(said("/good")))
    assert text_of(streamed) == "[burnish] Noted: the last reply was good."
    assert streamed[-1] == "[DONE]" and streamed[-2]["choices"][0]["finish_reason"] == "stop"
    assert n_asked(talking) == 0
    (bad, spoken), (good, _) = remarks(talking)
    assert (bad["rating"], bad["comment"], bad["source"]) == (-1.0, "too long", "user")
    assert (good["rating"], good["comment"]) == (1.0, None)
    assert [dict(message) for message in spoken] == conversation()


def test_a_message_is_answered_by_the_gateway(talking: Running) -> None:
    body = {"model": "agent", "max_tokens": 9, "messages": conversation(said("/good"))}
    with talking.client("user") as client:
        whole = client.post("/v1/messages", json=body)
        streamed = client.post("/v1/messages", json=body | {"stream": True})
    assert whole.json()["content"] == [{"type": "text", "text": "[burnish] Noted: the last reply was good."}]
    assert whole.json()["stop_reason"] == "end_turn"
    data = [json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: ")]
    assert [each["type"] for each in data][-1] == "message_stop"
    assert "".join(each["delta"].get("text", "") for each in data if each["type"] == "content_block_delta") == (
        "[burnish] Noted: the last reply was good."
    )
    assert n_asked(talking) == 0 and len(remarks(talking)) == 2


def test_a_response_is_answered_by_the_gateway(talking: Running) -> None:
    body = {"model": "agent", "input": conversation(said("/undo"))}
    with talking.client("user") as client:
        whole = client.post("/v1/responses", json=body)
        streamed = client.post("/v1/responses", json=body | {"stream": True})
    (item,) = whole.json()["output"]
    assert item["content"][0]["text"] == "[burnish] The rating of the last reply is taken back."
    data = [json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: ")]
    assert data[-1]["type"] == "response.completed"
    assert data[-1]["response"]["output"][0]["content"][0]["text"] == item["content"][0]["text"]
    assert n_asked(talking) == 0
    assert [remark["rating"] for remark, _ in remarks(talking)] == [None, None]


def test_the_model_never_reads_a_command_of_the_history(talking: Running) -> None:
    talking.chat("user", messages=conversation(said("/bad"), NOTED, said("and now?")))
    (request,) = talking.engine.requests
    assert request["messages"] == conversation(said("and now?"))
    (turn,) = talking.interactions
    assert [dict(message) for message in turn.messages] == conversation(said("and now?"))


def test_a_key_that_only_talks_is_told_that_it_does_not_count(talking: Running) -> None:
    text = talking.chat("talker", messages=conversation(said("/good"))).json()["choices"][0]["message"]["content"]
    assert text.startswith("[burnish] Noted") and text.endswith("this key lacks the scope feedback.")
    ((remark, _),) = remarks(talking)
    assert remark["source"] == "harness"


def test_without_a_reply_there_is_nothing_to_rate(talking: Running) -> None:
    text = talking.chat("user", messages=[said("/good")]).json()["choices"][0]["message"]["content"]
    assert text == "[burnish] There is no reply to rate yet."
    assert remarks(talking) == [] and n_asked(talking) == 0


def test_an_unrecorded_conversation_cannot_be_rated(talking: Running) -> None:
    sent = {"x-burnish-record": "false"}
    answer = talking.chat("user", messages=conversation(said("/good")), headers=sent)
    assert "not recorded" in answer.json()["choices"][0]["message"]["content"]
    assert remarks(talking) == []


def test_another_agents_commands_reach_the_model(talking: Running) -> None:
    talking.chat("user", model="second", messages=conversation(said("/good")))
    assert n_asked(talking) == 1 and remarks(talking) == []


def test_commands_are_off_by_default(gateway: Running) -> None:
    events(gateway.chat(stream=True, messages=conversation(said("/good"))))
    assert len(gateway.engine.requests) == 1


def test_a_comment_is_redacted_where_the_agents_turns_are(tmp_path: Path) -> None:
    stub = StubEngine(api_key=ENGINE_KEY, loaded={"agent@v2": "/a/2"})
    with stub, serve(tmp_path, stub, journal=Journal(redact=("*",)), commands=("*",)) as running:
        running.chat(messages=conversation(said("/bad write to ann@example.com")))
        ((remark, _),) = remarks(running)
    assert remark["comment"] == "write to [email]"
