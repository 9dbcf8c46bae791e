"""Responses through the gateway: as OpenAI's own client reads them, and as the record holds them."""

import json
import time
from itertools import pairwise
from typing import Any

import httpx
import openai
import pytest
from gateways import Running, error_of
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from burnish.errors import RequestError
from burnish.records import Interaction
from burnish.server.gateway.dialects.responses import Responses
from burnish.server.ingest.linking import Trace
from burnish.testing import EOS, Failure, Scripted, logprob_of, prompt_ids

Tree = dict[str, Any]
PATH = "/v1/responses"
TEXT = 'Grüße, "quoted"\n\ndata: [DONE]\n\n🙂 end'
ADD: Any = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}
PATCH: Any = {"type": "custom", "name": "apply_patch", "description": "Edits files."}
SHELL: Any = {"type": "local_shell"}
_event: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def ask(gateway: Running, key: str | None = None, headers: Tree | None = None, **body: Any) -> httpx.Response:
    with gateway.client(key) as client:
        return client.post(PATH, json={"model": "agent", "input": "hello there", **body}, headers=headers)


def client_of(gateway: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.secrets["talker"], max_retries=0)


def only(gateway: Running) -> Interaction:
    (interaction,) = gateway.interactions
    return interaction


def whole(response: httpx.Response) -> Tree:
    assert response.status_code == 200, response.text
    body: Tree = response.json()
    Response.model_validate(body, strict=True)
    return body


def events_of(response: httpx.Response) -> list[Tree]:
    """Every event of a stream: named, numbered, and of a type that OpenAI knows."""
    assert response.status_code == 200, response.text
    found = []
    for frame in response.text.split("\n\n")[:-1]:
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        parsed = _event.validate_python(event)
        assert isinstance(parsed, BaseModel)
        assert parsed.model_dump()["type"] == event["type"]
        found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def replayed(events: list[Tree]) -> Tree:
    """The last Response of a stream. Checks that the events before it add up to its items."""
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    for event in events[:2]:
        assert event["response"] | {"output": []} == event["response"]
        assert event["response"]["status"] == "in_progress"
    final: Tree = events[-1]["response"]
    Response.model_validate(final, strict=True)
    items: list[Tree] = []
    texts: dict[str, str] = {}
    for event in events[2:-1]:
        kind, index = event["type"], event["output_index"]
        if kind == "response.output_item.added":
            assert index == len(items)
            assert event["item"]["status"] == "in_progress"
            items.append(event["item"])
            texts[event["item"]["id"]] = ""
        elif kind == "response.output_item.done":
            assert event["item"] == final["output"][index]
            assert items[index]["id"] == event["item"]["id"]
            assert items[index]["type"] == event["item"]["type"]
        else:
            assert event["item_id"] == items[index]["id"]
            if kind.endswith(".delta"):
                assert event["delta"]
                texts[event["item_id"]] += event["delta"]
            elif kind.endswith("part.done"):
                assert event["part"] == final["output"][index]["content"][event["content_index"]]
            elif kind.endswith(".done"):
                (text,) = (event[name] for name in ("text", "arguments", "input") if name in event)
                assert text == texts[event["item_id"]]
    assert len(items) == len(final["output"])
    assert {event["response"]["id"] for event in (*events[:2], events[-1])} == {final["id"]}
    return final


def continues(later: Interaction, earlier: Interaction) -> bool:
    """True if the ingester would link the two."""
    return Trace(later).continuations()[0][1] == Trace(earlier).tail


def spoken(response: Tree) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def either(gateway: Running, stream: bool, **body: Any) -> Tree:
    response = ask(gateway, stream=stream, **body)
    return replayed(events_of(response)) if stream else whole(response)


@pytest.mark.parametrize("stream", [True, False])
def test_a_reply_is_relayed_and_recorded_as_sampled(gateway: Running, stream: bool) -> None:
    gateway.engine.replies = [TEXT]
    response = ask(gateway, stream=stream, temperature=0.7, instructions="be kind")
    body = replayed(events_of(response)) if stream else whole(response)
    assert spoken(body) == TEXT
    assert (body["status"], body["model"], body["temperature"]) == ("completed", "agent@v2", 0.7)
    assert body["model"] == response.headers["x-burnish-version"]
    assert body["instructions"] == "be kind"
    row = only(gateway)
    assert row.interaction_id == body["id"] == f"resp_{response.headers['x-request-id']}"
    assert row.reply == {"role": "assistant", "content": TEXT}
    asked = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello there"}]
    assert list(row.messages) == asked
    assert list(row.prompt_ids) == prompt_ids({"messages": asked})
    assert list(row.token_ids) == [*TEXT.encode(), EOS]
    assert list(row.logprobs) == pytest.approx([logprob_of("agent@v2", token) for token in row.token_ids])
    assert (row.route, row.sampling.temperature, row.sampling.is_plain) == ("responses", 0.7, True)
    assert (row.quarantine, row.is_aborted, row.may_train, row.finish_reason) == (None, False, True, "stop")
    n_prompt, n_sampled = len(row.prompt_ids), len(row.token_ids)
    assert body["usage"] == {
        "input_tokens": n_prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": n_sampled,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": n_prompt + n_sampled,
    }


def test_the_events_of_a_message_come_in_order(gateway: Running) -> None:
    events = events_of(ask(gateway, stream=True))
    assert [event["type"].removeprefix("response.") for event in events] == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *["output_text.delta"] * len("hello"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert events[4] == {
        "type": "response.output_text.delta",
        "sequence_number": 4,
        "item_id": events[2]["item"]["id"],
        "output_index": 0,
        "content_index": 0,
        "delta": "h",
        "logprobs": [],
    }


def test_tokens_leave_one_by_one_and_the_record_is_there_at_the_end(gateway: Running) -> None:
    gateway.engine.token_delay = 0.05
    seen: list[tuple[str, float]] = []
    with (
        gateway.client() as client,
        client.stream("POST", PATH, json={"model": "agent", "input": "hi", "stream": True}) as response,
    ):
        for line in response.iter_lines():
            if line.startswith("event: "):
                seen.append((line.removeprefix("event: response."), time.monotonic()))
                if line.endswith("item.done"):
                    assert len(gateway.interactions) == 1
    at = [moment for name, moment in seen if name == "output_text.delta"]
    assert len(at) == 5
    assert all(later - earlier > 0.02 for earlier, later in pairwise(at))


@pytest.mark.parametrize("stream", [True, False])
def test_reasoning_is_an_item_of_its_own(gateway: Running, stream: bool) -> None:
    gateway.engine.replies = [Scripted("Yes.", reasoning="hm, ü")]
    body = either(gateway, stream, include=["reasoning.encrypted_content"])
    thought, message = body["output"]
    assert thought["id"].startswith("rs_")
    assert (thought["summary"], thought["content"]) == ([], [{"type": "reasoning_text", "text": "hm, ü"}])
    assert (message["id"][:4], spoken(body)) == ("msg_", "Yes.")
    gateway.engine.replies = ["ok"]
    del thought["content"]  # as Codex sends it back
    again = either(gateway, stream, input=[{"role": "user", "content": "hello there"}, *body["output"]])
    assert "encrypted_content" not in json.dumps(again["output"])
    first, second = gateway.interactions
    assert second.messages[-1] == first.reply == {"role": "assistant", "content": "Yes.", "reasoning": "hm, ü"}


@pytest.mark.parametrize("stream", [True, False])
def test_tool_calls_in_parallel(gateway: Running, stream: bool) -> None:
    gateway.engine.replies = [Scripted("so: ", [("add", '{"a": 1}'), ("add", '{"a": 2}')])]
    body = either(gateway, stream, tools=[ADD])
    message, first, second = body["output"]
    assert message["content"][0]["text"] == "so: "
    assert [(item["name"], item["arguments"]) for item in (first, second)] == [("add", '{"a": 1}'), ("add", '{"a": 2}')]
    row = only(gateway)
    assert [first["call_id"], second["call_id"]] == [call["id"] for call in row.reply["tool_calls"]]
    assert first["id"] != second["id"]
    assert list(row.tools) == [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    assert (body["tools"], row.quarantine) == ([ADD], None)
    assert len(row.token_ids) == len(row.logprobs)


@pytest.mark.parametrize("stream", [True, False])
def test_custom_tools_and_the_shell(gateway: Running, stream: bool) -> None:
    patch = '*** Begin "Patch"\n+ü🙂\n'
    calls = [
        ("apply_patch", json.dumps({"input": patch})),
        ("local_shell", '{"command": ["ls", "-l"], "timeout_ms": 5}'),
    ]
    gateway.engine.replies = [Scripted("", calls), "done"]
    body = either(gateway, stream, tools=[PATCH, SHELL])
    custom, local = body["output"]
    assert (custom["type"], custom["name"], custom["input"]) == ("custom_tool_call", "apply_patch", patch)
    assert local["type"] == "local_shell_call"
    assert local["action"] == {"type": "exec", "command": ["ls", "-l"], "timeout_ms": 5, "env": {}}
    outputs = [
        {"type": "custom_tool_call_output", "call_id": custom["call_id"], "output": "ok"},
        {"type": "local_shell_call_output", "id": local["id"], "output": "a"},
    ]
    either(
        gateway,
        stream,
        tools=[PATCH, SHELL],
        input=[{"role": "user", "content": "hello there"}, *body["output"], *outputs],
    )
    first, second = gateway.interactions
    sent = second.messages[1]
    assert [call["id"] for call in sent["tool_calls"]] == [call["id"] for call in first.reply["tool_calls"]]
    for repeated, recorded in zip(sent["tool_calls"], first.reply["tool_calls"], strict=True):
        assert repeated["function"]["name"] == recorded["function"]["name"]
        assert json.loads(repeated["function"]["arguments"]) == json.loads(recorded["function"]["arguments"])
    assert [message["role"] for message in second.messages] == ["user", "assistant", "tool", "tool"]
    assert continues(second, first)


def test_the_openai_client_over_three_turns(gateway: Running) -> None:
    gateway.engine.replies = [
        Scripted("", [("add", '{"a":  1}'), ("add", "{}")], reasoning="first"),
        Scripted("It is 2."),
        Scripted("Bye."),
    ]
    history: list[Any] = [{"role": "user", "content": "what is 1+1?"}]
    with client_of(gateway) as client:
        one = client.responses.create(model="agent", input=history, tools=[ADD], instructions="be brief")
        calls = [item for item in one.output if item.type == "function_call"]
        history += [item.to_dict() for item in one.output]
        history += [{"type": "function_call_output", "call_id": call.call_id, "output": "2"} for call in calls]
        with client.responses.stream(model="agent", input=history, tools=[ADD], instructions="be brief") as stream:
            deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            two = stream.get_final_response()
        assert deltas == two.output_text == "It is 2."
        history += [item.to_dict() for item in two.output] + [{"role": "user", "content": "thanks"}]
        stream = client.responses.create(
            model="agent@v1", input=history, tools=[ADD], instructions="be brief", stream=True
        )
        three = [event for event in stream][-1]
    assert three.type == "response.completed"
    assert three.response.output_text == "Bye."
    rows = gateway.interactions
    assert [row.interaction_id for row in rows] == [one.id, two.id, three.response.id]
    assert [row.version for row in rows] == [2, 2, 1]
    messages = list(rows[2].messages)
    assert [message["role"] for message in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "user",
    ]
    assert messages[2] == rows[0].reply
    assert messages[5] == rows[1].reply
    assert list(rows[1].messages) == messages[:5]
    assert continues(rows[1], rows[0])
    assert continues(rows[2], rows[1])
    for row in rows:
        assert row.quarantine is None
        assert len(row.token_ids) == len(row.logprobs) > 0
        assert list(row.prompt_ids) == prompt_ids({"messages": row.messages})


def test_a_schema_is_parsed_by_the_openai_client(gateway: Running) -> None:
    class Sum(BaseModel):
        total: int

    gateway.engine.replies = ['{"total": 2}']
    with client_of(gateway) as client:
        parsed = client.responses.parse(model="agent", input="1+1", text_format=Sum)
    assert parsed.output_parsed == Sum(total=2)
    assert gateway.engine.requests[-1]["response_format"]["json_schema"]["name"] == "Sum"
    assert not only(gateway).sampling.is_plain


@pytest.mark.parametrize("stream", [True, False])
def test_a_reply_that_is_cut_off_is_incomplete(gateway: Running, stream: bool) -> None:
    gateway.engine.replies = [Scripted("hel", finish_reason="length")]
    response = ask(gateway, stream=stream, max_output_tokens=3)
    if stream:
        events = events_of(response)
        assert events[-1]["type"] == "response.incomplete"
    body = replayed(events_of(response)) if stream else whole(response)
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (body["output"][0]["status"], body["max_output_tokens"]) == ("incomplete", 3)
    assert gateway.engine.requests[-1]["max_tokens"] == 3
    assert only(gateway).finish_reason == "length"


@pytest.mark.parametrize("stream", [True, False])
def test_a_reply_that_the_engine_gives_up_has_failed(gateway: Running, stream: bool) -> None:
    gateway.engine.replies = [Scripted("hel", finish_reason="abort")]
    body = either(gateway, stream)
    assert (body["status"], body["error"]["code"], body["output"][0]["status"]) == (
        "failed",
        "server_error",
        "incomplete",
    )
    assert only(gateway).is_aborted


@pytest.mark.parametrize("stream", [True, False])
def test_an_empty_reply_is_an_empty_message(gateway: Running, stream: bool) -> None:
    gateway.engine.replies = [""]
    body = either(gateway, stream)
    assert [part["text"] for part in body["output"][0]["content"]] == [""]


@pytest.mark.parametrize("stream", [True, False])
def test_log_probs_are_given_to_who_asks(gateway: Running, stream: bool) -> None:
    gateway.engine.replies = [Scripted("ab", reasoning="x")]
    body = either(gateway, stream, include=["message.output_text.logprobs"], top_logprobs=2)
    entries = body["output"][1]["content"][0]["logprobs"]
    assert [entry["token"] for entry in entries] == ["a", "b"]
    assert entries[0]["logprob"] == pytest.approx(logprob_of("agent@v2", ord("a")))
    assert [len(entry["top_logprobs"]) for entry in entries] == [2, 2]
    assert body["top_logprobs"] == 2
    assert either(gateway, stream)["output"][1]["content"][0]["logprobs"] == []


def test_what_the_request_asked_for_is_repeated(gateway: Running) -> None:
    asked = {
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "prompt_cache_key": "k",
        "reasoning": {"effort": "low"},
        "safety_identifier": "s",
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "tool_choice": {"type": "function", "name": "add"},
        "tools": [ADD],
        "top_p": 0.5,
        "user": "ann",
    }
    response = ask(
        gateway, **asked, client_metadata={"x": "y"}, stream_options={"include_obfuscation": False}, store=True
    )
    body = whole(response)
    assert {name: body[name] for name in asked} == asked
    assert (body["store"], body["previous_response_id"], body["truncation"]) == (False, None, "disabled")
    assert response.headers["x-burnish-ignored"] == "text.verbosity"
    assert response.headers["x-burnish-session"] == "k"
    row = only(gateway)
    assert (row.quoted_session, row.quoted_by, row.quoted_user) == ("k", "prompt_cache_key", "ann")


def test_what_cannot_run_here_is_left_out_and_named(gateway: Running) -> None:
    response = ask(
        gateway, tools=[ADD, {"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]
    )
    assert response.headers["x-burnish-ignored"] == "tools.web_search, tools.code_interpreter"
    assert len(whole(response)["tools"]) == 3
    assert len(gateway.engine.requests[-1]["tools"]) == 1


USER = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}


def with_item(item: Any) -> Tree:
    return {"input": [USER, item]}


def with_part(part: Any) -> Tree:
    return {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}, part]}]}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": None}, "model"),
        ({"input": None}, "input"),
        ({"input": 7}, "input"),
        ({"input": []}, "input"),
        ({"input": ["hi"]}, "input[0]"),
        ({"input": [{"content": "hi"}]}, "input[0]"),
        ({"input": [{"type": 7}]}, "input[0].type"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "tool", "content": "hi"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 7}]}, "input[0].content"),
        (with_item({"type": "message", "content": "hi"}), "input[1].role"),
        (with_item({"type": "item_reference", "id": "msg_1"}), "input[1]"),
        (with_item({"id": "msg_1"}), "input[1]"),
        (with_item({"type": "computer_call_output"}), "input[1].type"),
        (with_item({"type": "compaction", "encrypted_content": "x"}), "input[1].type"),
        (with_item({k: v for k, v in CALL.items() if k != "call_id"}), "input[1].call_id"),
        (with_item(CALL | {"arguments": {}}), "input[1].arguments"),
        (with_item({"type": "function_call_output", "output": "x"}), "input[1].call_id"),
        (with_item({"type": "function_call_output", "call_id": "c"}), "input[1].output"),
        (with_item({"type": "local_shell_call_output", "output": "x"}), "input[1].call_id"),
        (with_item({"type": "local_shell_call", "call_id": "c", "action": []}), "input[1].action"),
        (with_item({"type": "custom_tool_call", "call_id": "c", "name": "x"}), "input[1].input"),
        (with_item({"type": "reasoning", "content": [{"type": "reasoning_text"}]}), "input[1].content[0].text"),
        (with_item({"role": "assistant", "content": [{"type": "input_image"}]}), "input[1].content[0].type"),
        (with_part({"type": "input_text"}), "input[0].content[1].text"),
        (with_part({"text": "x"}), "input[0].content[1].type"),
        (with_part({"type": "nonsense"}), "input[0].content[1].type"),
        (with_part({"type": "input_file", "file_id": "file_1"}), "input[0].content[1]"),
        (with_part({"type": "input_image", "file_id": "file_1"}), "input[0].content[1].image_url"),
        ({"instructions": ["x"]}, "instructions"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"n": 2}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"include": "x"}, "include"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"reasoning": {"effort": 7}}, "reasoning.effort"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"name": "x"}]}, "tools[0].type"),
        ({"tools": [{"type": "x\r\ny"}]}, "tools[0].type"),
        ({"tools": [ADD, {"type": "function"}]}, "tools[1].name"),
        ({"tools": [{"type": "custom"}]}, "tools[0].name"),
        ({"tools": [ADD | {"parameters": []}]}, "tools[0].parameters"),
        ({"tool_choice": "some"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "web_search"}, ADD], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": {"type": "function", "name": "sub"}}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": {"type": "function"}}, "tool_choice.name"),
        (
            {"tools": [ADD], "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function"}]}},
            "tool_choice.tools[0].name",
        ),
    ],
)
def test_wrong_fields_are_named(shared: Running, body: Tree, param: str) -> None:
    n_before = len(shared.engine.requests)
    error = error_of(ask(shared, **body), 400)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert error["code"] in {"invalid_value", "unsupported"}
    assert param in error["message"]
    assert len(shared.engine.requests) == n_before


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[]", b"null", b'{"input": ' + b"[" * 100_000, b'{"model": "agent"}']
)
def test_malformed_json_is_a_400(shared: Running, body: bytes) -> None:
    with shared.client() as client:
        error_of(client.post(PATH, content=body), 400)
        error_of(client.get(PATH), 405)


@pytest.mark.parametrize(
    "text", [b'"\\ud800"', b'[{"role": "user", "content": "\\ud800"}]', b'[{"role": "user", "content": [{}]}]']
)
def test_what_no_text_can_hold_is_a_400(shared: Running, text: bytes) -> None:
    with shared.client() as client:
        error_of(client.post(PATH, content=b'{"model": "agent", "input": %s}' % text), 400)


def test_what_the_engine_objects_to_is_passed_on(shared: Running) -> None:
    assert error_of(ask(shared, temperature=True), 400)["param"] == "temperature"
    error = error_of(ask(shared, model="nobody"), 404)
    assert error["code"] == "model_not_found"


def test_the_engine_knows_fields_by_other_names() -> None:
    for theirs, ours in (("max_tokens", "max_output_tokens"), ("messages", "input"), ("top_p", "top_p")):
        status, body, _ = Responses().reply_to(RequestError("too many", param=theirs), "r")
        assert (status, json.loads(body)["error"]["param"]) == (400, ours)


@pytest.mark.parametrize("failure", [Failure.REFUSE, Failure.FULL])
@pytest.mark.parametrize("stream", [True, False])
def test_a_failure_before_the_first_byte_is_a_503(gateway: Running, failure: Failure, stream: bool) -> None:
    gateway.engine.failure = failure
    response = ask(gateway, stream=stream)
    error_of(response, 503)
    assert response.headers["retry-after"]
    with client_of(gateway) as client, pytest.raises(openai.InternalServerError):
        client.responses.create(model="agent", input="hi", stream=stream)


@pytest.mark.parametrize("failure", [Failure.CUT, Failure.ERROR_EVENT])
def test_a_failure_in_mid_stream_is_an_exception_for_the_client(gateway: Running, failure: Failure) -> None:
    gateway.engine.failure = failure
    gateway.engine.token_delay = 0.02
    events = events_of(ask(gateway, stream=True))
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    error, failed = events[-2:]
    assert error["code"] == error["error"]["code"] == "engine_unavailable"
    assert (failed["response"]["status"], failed["response"]["error"]["code"]) == ("failed", "server_error")
    assert failed["response"]["output"][0]["content"][0]["text"] == "he"
    assert failed["response"]["output"][0]["status"] == "incomplete"
    with client_of(gateway) as client:
        with pytest.raises(openai.APIError) as raised:
            list(client.responses.create(model="agent", input="hi", stream=True))
        with pytest.raises(openai.APIError), client.responses.stream(model="agent", input="hi") as stream:
            stream.get_final_response()
    assert raised.value.code == "engine_unavailable"
    for row in gateway.interactions:
        assert (row.is_aborted, row.reply["content"]) == (True, "he")


def test_a_client_that_leaves_takes_its_engine_request_with_it(gateway: Running) -> None:
    gateway.engine.replies = ["x" * 200]
    gateway.engine.token_delay = 0.02
    with (
        gateway.client() as client,
        client.stream("POST", PATH, json={"model": "agent", "input": "hi", "stream": True}) as response,
    ):
        for line in response.iter_lines():
            if line == "event: response.output_text.delta":
                break
    end = time.monotonic() + 5
    while not gateway.interactions and time.monotonic() < end:
        time.sleep(0.02)
    row = only(gateway)
    assert row.is_aborted
    assert 0 < len(row.token_ids) == len(row.logprobs) < 200
    while not gateway.engine.n_aborted and time.monotonic() < end:
        time.sleep(0.02)
    assert gateway.engine.n_aborted == 1


def test_a_codex_request(gateway: Running) -> None:
    gateway.engine.replies = [Scripted("", [("exec", '{"cmd": "ls"}')], reasoning="look")]
    body = replayed(
        events_of(
            ask(
                gateway,
                headers={"session_id": "s-1", "originator": "codex_cli_rs"},
                client_metadata={"x-codex-installation-id": "i"},
                include=["reasoning.encrypted_content"],
                input=[
                    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "sandboxed"}]},
                    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list files"}]},
                ],
                instructions="You are Codex.",
                parallel_tool_calls=True,
                prompt_cache_key="s-1",
                reasoning={"effort": "medium", "summary": "auto"},
                store=False,
                stream=True,
                tool_choice="auto",
                tools=[ADD | {"name": "exec"}, PATCH, {"type": "web_search", "external_web_access": False}],
            )
        )
    )
    assert [item["type"] for item in body["output"]] == ["reasoning", "function_call"]
    row = only(gateway)
    assert (row.quoted_session, row.quoted_by, row.sampling.is_plain) == ("s-1", "session_id", True)
    assert [message["role"] for message in row.messages] == ["system", "system", "user"]
    assert len(row.tools) == 2
