"""`/v1/messages` through the real gateway: Anthropic's own client, and turns recorded in chat form."""

import json
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
from gateways import ENGINE_KEY, HELLO, Running, serve
from test_failures import in_flight, until

from burnish.records import Interaction
from burnish.server.ingest.linking import Trace
from burnish.testing import EOS, Failure, Scripted, StubEngine, logprob_of, prompt_ids

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
TEXT = 'Grüße, "quoted"\n\nevent: error\ndata: {}\n\n🙂 end'
ADD: Any = {"name": "add", "description": "adds", "input_schema": {"type": "object", "properties": {"a": {}}}}
ADD_CHAT = {
    "type": "function",
    "function": {"name": "add", "description": "adds", "parameters": {"type": "object", "properties": {"a": {}}}},
}


@pytest.fixture
def client(gateway: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway.url, api_key=gateway.secrets["talker"], max_retries=0) as found:
        yield found


def say(
    gateway: Running, key: str | None = None, path: str = PATH, headers: Any = None, **fields: Any
) -> httpx.Response:
    tree = {"model": "agent", "max_tokens": 64, "messages": HELLO, **fields}
    with gateway.client(key) as http:
        return http.post(path, json={name: value for name, value in tree.items() if value is not None}, headers=headers)


def error_of(response: httpx.Response, status: int, kind: str) -> str:
    assert response.status_code == status, response.text
    tree = response.json()
    assert set(tree) == {"type", "error", "request_id"}
    assert (tree["type"], tree["error"]["type"]) == ("error", kind)
    assert tree["request_id"] == response.headers["x-request-id"]
    message: str = tree["error"]["message"]
    return message


def only(gateway: Running) -> Interaction:
    (row,) = gateway.interactions
    return row


def assert_sound(row: Interaction, sampled: str) -> None:
    assert list(row.token_ids) == [*sampled.encode(), EOS]
    assert list(row.logprobs) == pytest.approx([logprob_of("agent@v2", token) for token in row.token_ids])
    assert list(row.prompt_ids) == prompt_ids({"messages": [dict(message) for message in row.messages]})
    assert (row.route, row.version, row.quarantine, row.is_aborted) == ("messages", 2, None, False)


def test_a_whole_message(gateway: Running, client: anthropic.Anthropic) -> None:
    gateway.engine.replies = [TEXT]
    message = client.messages.create(
        model="agent",
        max_tokens=99,
        system="be kind",
        messages=[{"role": "user", "content": "hi"}],
        extra_body={"temperature": 0.7},
    )
    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": TEXT}]
    assert (message.type, message.role, message.model) == ("message", "assistant", "agent@v2")
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    row = only(gateway)
    assert row.interaction_id == message.id == f"msg_{row.request_id}"
    assert list(row.messages) == [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    assert row.reply == {"role": "assistant", "content": TEXT}
    assert (message.usage.input_tokens, message.usage.output_tokens) == (len(row.prompt_ids), len(row.token_ids))
    assert (message.usage.cache_creation_input_tokens, message.usage.cache_read_input_tokens) == (0, 0)
    assert (row.sampling.temperature, row.sampling.is_plain, row.may_train) == (0.7, True, True)
    assert_sound(row, TEXT)


def test_a_streamed_message_is_the_same_turn(gateway: Running, client: anthropic.Anthropic) -> None:
    gateway.engine.replies = [TEXT]
    with client.messages.stream(model="agent", max_tokens=99, messages=[{"role": "user", "content": "hi"}]) as stream:
        assert "".join(stream.text_stream) == TEXT
        message = stream.get_final_message()
    assert (message.stop_reason, message.model) == ("end_turn", "agent@v2")
    row = only(gateway)
    assert row.interaction_id == message.id
    assert (message.usage.input_tokens, message.usage.output_tokens) == (len(row.prompt_ids), len(row.token_ids))
    assert gateway.engine.requests[-1]["stream_options"] == {"include_usage": True}
    assert_sound(row, TEXT)


def test_the_record_is_there_when_the_client_sees_the_end(gateway: Running) -> None:
    gateway.engine.token_delay = 0.02
    tree = {"model": "agent", "max_tokens": 9, "messages": HELLO, "stream": True}
    n_deltas = 0
    with gateway.client() as http, http.stream("POST", PATH, json=tree) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line == "event: content_block_delta":
                n_deltas += 1
                assert n_deltas == 5 or not gateway.interactions, "pieces come while the engine writes"
            if line == "event: message_delta":
                assert len(gateway.interactions) == 1
    assert (n_deltas, line) == (5, "")


@pytest.mark.parametrize("streams", [True, False])
def test_three_turns_with_parallel_tools(gateway: Running, client: anthropic.Anthropic, streams: bool) -> None:
    replies = [
        Scripted("so: ", [("add", '{"a": 1}'), ("add", '{"a": [2, "ü"]}')]),
        Scripted("", [("add", "{}")]),
        Scripted("done"),
    ]
    gateway.engine.replies = replies
    messages: list[Any] = [{"role": "user", "content": "go"}]
    for n_results in (2, 1, 0):
        asked: Any = {"model": "agent", "max_tokens": 999, "messages": messages, "tools": [ADD]}
        if streams:
            with client.messages.stream(**asked) as stream:
                message = stream.get_final_message()
        else:
            message = client.messages.create(**asked)
        uses = [block for block in message.content if block.type == "tool_use"]
        assert len(uses) == n_results
        assert message.stop_reason == ("tool_use" if uses else "end_turn")
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": f"r{at}"} for at, use in enumerate(uses)]
        messages = [*messages, message.to_param(), {"role": "user", "content": results}]
    rows = gateway.interactions
    for row, reply in zip(rows, replies, strict=True):
        assert_sound(row, reply.text)
        assert list(row.tools) == [ADD_CHAT]
    for earlier, later in pairwise(rows):
        assert (len(earlier.messages) + 1, Trace(earlier).tail) in Trace(later).continuations()
        calls = earlier.reply["tool_calls"]
        assert later.messages[len(earlier.messages) + 1 :] == [
            {"role": "tool", "tool_call_id": call["id"], "content": f"r{at}"} for at, call in enumerate(calls)
        ]
    assert [call["function"]["arguments"] for call in rows[0].reply["tool_calls"]] == ['{"a": 1}', '{"a": [2, "ü"]}']
    assert rows[0].finish_reason == "tool_calls"


def test_a_tool_that_must_be_used_is_served_and_not_plain(gateway: Running, client: anthropic.Anthropic) -> None:
    gateway.engine.replies = [Scripted("", [("add", '{"a": 1}')], finish_reason="stop")]
    message = client.messages.create(
        model="agent",
        max_tokens=99,
        messages=[{"role": "user", "content": "go"}],
        tools=[ADD],
        tool_choice={"type": "any"},
    )
    assert message.stop_reason == "tool_use"
    assert not only(gateway).sampling.is_plain


@pytest.mark.parametrize("streams", [True, False])
def test_a_reply_cut_at_its_limit(gateway: Running, streams: bool) -> None:
    gateway.engine.replies = [Scripted("half a", finish_reason="length")]
    response = say(gateway, stream=streams, max_tokens=7, stop_sequences=["END"])
    assert '"stop_reason":"max_tokens"' in response.text
    assert (gateway.engine.requests[-1]["max_tokens"], gateway.engine.requests[-1]["stop"]) == (7, ["END"])
    assert only(gateway).finish_reason == "length"


def test_sessions_people_and_what_was_ignored(gateway: Running) -> None:
    metadata = {"user_id": "user_ab_account_cd_session_ef"}
    response = say(
        gateway, metadata=metadata, service_tier="auto", headers={"anthropic-beta": "x", "anthropic-version": "y"}
    )
    assert response.headers["x-burnish-session"] == "ef"
    assert response.headers["x-burnish-ignored"] == "service_tier"
    say(gateway, metadata=metadata, headers={"x-claude-code-session-id": "gh"})
    say(gateway, session_id="ours", turn_type="side", session_done=True, metadata=metadata)
    assert [(row.quoted_session, row.quoted_by, row.quoted_user) for row in gateway.interactions] == [
        ("ef", "metadata.user_id", "user_ab_account_cd"),
        ("gh", "x-claude-code-session-id", "user_ab_account_cd"),
        ("ours", "session_id", "user_ab_account_cd"),
    ]
    assert (gateway.interactions[2].turn_type, gateway.interactions[2].is_session_done) == ("side", True)


@pytest.mark.parametrize("name", ["a\r\nx-evil: 1", "a\x00b", "é\u2028"])
def test_a_session_of_any_characters_is_served(gateway: Running, name: str) -> None:
    for response in (say(gateway, session_id=name), gateway.chat(session_id=name)):
        assert response.status_code == 200
        assert "x-evil" not in response.headers
    assert {row.quoted_session for row in gateway.interactions} == {name}


def test_tokens_are_counted_and_not_recorded(gateway: Running, client: anthropic.Anthropic) -> None:
    counted = client.messages.count_tokens(
        model="agent", system="s", messages=[{"role": "user", "content": "hello there"}], tools=[ADD]
    )
    expected = [{"role": "system", "content": "s"}, {"role": "user", "content": "hello there"}]
    assert counted.input_tokens == len(prompt_ids({"messages": expected}))
    assert gateway.engine.requests == [
        {"model": "agent@v2", "messages": expected, "tools": [ADD_CHAT], "add_generation_prompt": True}
    ]
    message = client.messages.create(
        model="agent", max_tokens=9, system="s", messages=[{"role": "user", "content": "hello there"}], tools=[ADD]
    )
    assert message.usage.input_tokens == counted.input_tokens
    assert len(gateway.interactions) == 1
    until(lambda: not in_flight(gateway))


@pytest.mark.parametrize("path", [PATH, COUNT])
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": None}, "model:"),
        ({"messages": []}, "messages:"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0].source:"),
        ({"messages": [*HELLO, {"role": "robot", "content": "x"}]}, "messages[1].role:"),
        ({"tools": [{"name": "x"}]}, "tools[0].input_schema:"),
        ({"system": 7}, "system:"),
    ],
)
def test_wrong_fields_are_named(shared: Running, path: str, fields: dict[str, Any], said: str) -> None:
    n_before = len(shared.engine.requests)
    assert error_of(say(shared, path=path, **fields), 400, "invalid_request_error").startswith(said)
    assert len(shared.engine.requests) == n_before


def test_max_tokens_is_needed_for_a_reply_only(shared: Running) -> None:
    assert error_of(say(shared, max_tokens=None), 400, "invalid_request_error").startswith("max_tokens:")
    assert say(shared, path=COUNT, max_tokens=None).status_code == 200


@pytest.mark.parametrize("path", [PATH, COUNT])
def test_every_error_is_in_anthropics_envelope(shared: Running, path: str) -> None:
    with shared.client() as http:
        for content in (b"", b"{", b"[]", b"\xff", b'{"messages": ' + b"[" * 100_000):
            error_of(http.post(path, content=content), 400, "invalid_request_error")
        refused = http.get(path)
        error_of(refused, 405, "invalid_request_error")
        assert refused.headers["allow"] == "POST"
        error_of(http.post(path, headers={"host": "evil.example"}), 403, "permission_error")
        error_of(http.post(path, headers={"origin": "http://evil.example"}), 403, "permission_error")
        error_of(http.post(path, headers={"authorization": "Bearer sk-burnish-x"}), 401, "authentication_error")
        error_of(http.post(path, content=b"x" * (33 * 2**20)), 413, "request_too_large")
        error_of(http.post(path + "/batches"), 404, "not_found_error")
    error_of(say(shared, "voter", path=path), 403, "permission_error")
    error_of(say(shared, "limited", path=path, model="second"), 403, "permission_error")
    assert "agent@v9" in error_of(say(shared, path=path, model="agent@v9"), 404, "not_found_error")


def test_paths_below_messages_are_not_left_to_the_application_behind(tmp_path: Path, engine: StubEngine) -> None:
    async def behind(*_: Any) -> None:
        raise AssertionError("asked")

    with serve(tmp_path, engine, behind) as gateway, gateway.client() as http:
        error_of(http.post(PATH + "/batches"), 404, "not_found_error")


def test_the_engines_own_words_stay_in_the_log(gateway: Running) -> None:
    gateway.engine.failure = Failure.REFUSE
    response = say(gateway)
    assert "scripted" not in error_of(response, 529, "overloaded_error")


def test_a_bug_is_a_500_without_its_inside(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise ValueError("secret detail")

    monkeypatch.setattr("burnish.server.gateway.exchange.resolve", explode)
    assert "secret" not in error_of(say(gateway), 500, "api_error")


@pytest.mark.parametrize("fields", [{"stream": True}, {"stream": False}, {"path": COUNT}])
def test_an_engine_that_is_away_is_a_529_that_says_when_to_come_back(gateway: Running, fields: dict[str, Any]) -> None:
    assert say(gateway, **fields).status_code == 200
    gateway.engine.stop()
    response = say(gateway, **fields)
    assert "try again" in error_of(response, 529, "overloaded_error")
    assert int(response.headers["retry-after"]) >= 1


def test_anthropics_client_comes_back_after_a_529(gateway: Running) -> None:
    gateway.engine.failure = Failure.FULL
    threading.Timer(0.3, lambda: setattr(gateway.engine, "failure", None)).start()
    with anthropic.Anthropic(base_url=gateway.url, api_key=gateway.secrets["talker"], max_retries=2) as client:
        client.messages.create(model="agent", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    assert only(gateway).retry == 1


@pytest.mark.parametrize("failure", [Failure.CUT, Failure.ERROR_EVENT])
def test_an_engine_that_dies_in_mid_stream_ends_with_an_error_event(
    gateway: Running, client: anthropic.Anthropic, failure: Failure
) -> None:
    gateway.engine.failure = failure
    gateway.engine.token_delay = 0.02
    seen = []
    with (
        pytest.raises(anthropic.APIStatusError) as raised,
        client.messages.stream(model="agent", max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as stream,
    ):
        for event in stream:
            seen.append(event.type)
    assert seen[0] == "message_start"
    assert "message_delta" not in seen
    body: Any = raised.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "overloaded_error")
    row = only(gateway)
    assert (row.is_aborted, row.finish_reason) == (True, None)
    assert 1 <= len(row.token_ids) == len(row.logprobs) < 5


def test_a_reply_that_the_engine_gave_up_is_an_error_and_aborted(gateway: Running) -> None:
    gateway.engine.replies = [Scripted("half", finish_reason="abort")]
    error_of(say(gateway), 529, "overloaded_error")
    gateway.engine.token_delay = 0.02  # so that the stream has begun by then
    *_, name, data = [line for line in say(gateway, stream=True).text.splitlines() if line]
    assert (name, json.loads(data.removeprefix("data: "))["error"]["type"]) == ("event: error", "overloaded_error")
    assert [row.is_aborted for row in gateway.interactions] == [True, True]


def test_a_client_that_leaves_takes_its_engine_request_with_it(gateway: Running) -> None:
    gateway.engine.replies = ["a long reply " * 20]
    gateway.engine.token_delay = 0.02
    tree = {"model": "agent", "max_tokens": 999, "messages": HELLO, "stream": True}
    with gateway.client() as http, http.stream("POST", PATH, json=tree) as response:
        for line in response.iter_lines():
            if '"text":"l"' in line:
                break
    until(lambda: gateway.interactions)
    until(lambda: gateway.engine.n_aborted == 1)
    row = only(gateway)
    assert row.is_aborted
    assert row.reply["content"].startswith("a l")
    until(lambda: not in_flight(gateway))


@pytest.mark.parametrize("path", [PATH, COUNT, "/v1/chat/completions"])
def test_a_key_may_come_as_x_api_key(tmp_path: Path, engine: StubEngine, path: str) -> None:
    with serve(tmp_path, engine, open_inference=False) as gateway:
        talker, voter = gateway.secrets["talker"], gateway.secrets["voter"]
        for headers, status in (
            ({}, 401),
            ({"x-api-key": ""}, 401),
            ({"x-api-key": talker}, 200),
            ({"x-api-key": voter}, 403),
            ({"x-api-key": "sk-burnish-wrong"}, 401),
            ({"x-api-key": ENGINE_KEY}, 401),
            ({"authorization": f"Bearer {talker}", "x-api-key": "sk-burnish-wrong"}, 200),
            ({"authorization": "Bearer sk-burnish-wrong", "x-api-key": talker}, 401),
            ({"authorization": f"Bearer {voter}", "x-api-key": talker}, 403),
            ({"authorization": "Bearer", "x-api-key": talker}, 200),
            ({"authorization": "Basic YTpi", "x-api-key": talker}, 401),
        ):
            assert say(gateway, path=path, headers=headers).status_code == status, headers
        sent = str(engine.headers)
        assert talker not in sent


@pytest.mark.parametrize("path", [PATH, COUNT, "/v1/chat/completions"])
def test_an_unknown_x_api_key_is_refused_even_where_none_is_needed(shared: Running, path: str) -> None:
    assert say(shared, path=path).status_code == 200
    for secret in ("sk-burnish-wrong", "x", ENGINE_KEY):
        assert say(shared, path=path, headers={"x-api-key": secret}).status_code == 401


def test_anthropics_clients_may_call_from_a_listed_page(tmp_path: Path, engine: StubEngine) -> None:
    page = "https://app.example"
    with serve(tmp_path, engine, allowed_origins=(page,)) as gateway, gateway.client() as http:
        response = http.options(PATH, headers={"origin": page, "access-control-request-method": "POST"})
        allowed = response.headers["access-control-allow-headers"].split(", ")
        assert {"authorization", "content-type", "x-api-key", "anthropic-version", "anthropic-beta"} <= set(allowed)


def test_a_harness_with_names_of_its_own_gets_the_mapped_model(tmp_path: Path, engine: StubEngine) -> None:
    model_map = {
        "claude-haiku-*": "agent@v1",
        "claude-*": "agent",
        "second*": "agent",
        "gpt-*": "nobody",
        "agent*": "base",
    }
    with serve(tmp_path, engine, model_map=model_map) as gateway:
        for asked, answered in (
            ("claude-haiku-4-5", "agent@v1"),
            ("claude-opus-4-8", "agent@v2"),
            ("agent", "agent@v2"),
            ("second", "second@v0"),
            ("second-best", "agent@v2"),
        ):
            assert say(gateway, model=asked).json()["model"] == answered, asked
            assert gateway.chat(model=asked).json()["model"] == answered, asked
        assert say(gateway, path=COUNT, model="claude-x").status_code == 200
        assert "gateway.model_map" in error_of(say(gateway, model="gpt-5"), 404, "not_found_error")
        error_of(say(gateway, model="other"), 404, "not_found_error")
        error_of(say(gateway, model="agent@v9"), 404, "not_found_error")  # a pinned version has no replacement
        error_of(say(gateway, "stranger", model="claude-x"), 404, "not_found_error")
        assert say(gateway, "limited", model="claude-x").status_code == 200
        with gateway.client() as http:
            assert http.get("/v1/models/claude-x").json()["root"] == "agent@v2"
            assert not [model for model in http.get("/v1/models").json()["data"] if "claude" in model["id"]]
