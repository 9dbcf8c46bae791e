"""Chat completions: relayed unchanged, without unrequested fields, recorded before the client sees the end."""

import functools
import gc
import json
import math

import httpx
import openai
import pytest
from gateways import HELLO, Running, events, text_of

from burnish.records import Interaction
from burnish.testing import EOS, Scripted, logprob_of, prompt_ids

TEXT = 'Grüße, "quoted"\n\ndata: [DONE]\n\n🙂 end'
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def only(gateway: Running) -> Interaction:
    (interaction,) = gateway.interactions
    return interaction


def test_a_stream_is_relayed_and_recorded_as_sampled(gateway: Running) -> None:
    gateway.engine.replies = [TEXT]
    chunks = gateway.stream(temperature=0.7)
    assert text_of(chunks) == TEXT
    assert chunks[-1] == "[DONE]"
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1] if c["choices"][0]["finish_reason"]] == ["stop"]
    row = only(gateway)
    assert row.interaction_id == chunks[0]["id"]
    assert row.reply == {"role": "assistant", "content": TEXT}
    assert list(row.token_ids) == [*TEXT.encode(), EOS]
    assert list(row.logprobs) == pytest.approx([logprob_of("agent@v2", token) for token in row.token_ids])
    assert list(row.prompt_ids) == prompt_ids({"messages": HELLO})
    assert (row.agent, row.version, row.tenant, row.key_id) == ("agent", 2, "default", "open")
    assert (row.sampling.temperature, row.sampling.is_plain) == (0.7, True)
    assert (row.quarantine, row.is_aborted, row.may_train, row.finish_reason) == (None, False, True, "stop")


def test_a_whole_reply_is_the_same_turn(gateway: Running) -> None:
    gateway.engine.replies = [TEXT]
    response = gateway.chat()
    body = response.json()
    assert body["choices"][0]["message"]["content"] == TEXT
    assert body["model"] == body["system_fingerprint"] == response.headers["x-burnish-version"] == "agent@v2"
    assert len(response.headers["x-request-id"]) == 32
    assert "x-burnish-session" not in response.headers
    row = only(gateway)
    assert (row.interaction_id, row.request_id) == (body["id"], response.headers["x-request-id"])
    assert list(row.token_ids) == [*TEXT.encode(), EOS]
    assert row.quarantine is None


@pytest.mark.parametrize("stream", [True, False])
def test_nothing_that_was_not_asked_for_reaches_the_client(gateway: Running, stream: bool) -> None:
    response = gateway.chat(stream=stream)
    bodies = events(response)[:-1] if stream else [response.json()]
    for body in bodies:
        assert not body.get("prompt_token_ids")
        assert body["choices"], "an empty chunk breaks clients that read choices[0]"
        assert all("token_ids" not in choice and choice["logprobs"] is None for choice in body["choices"])
        assert stream is False or "usage" not in body
    sent = gateway.engine.requests[-1]
    assert sent["return_token_ids"] is sent["logprobs"] is True
    assert sent["model"] == "agent@v2"


def test_what_was_asked_for_is_kept(gateway: Running) -> None:
    chunks = gateway.stream(
        logprobs=True, top_logprobs=2, return_token_ids=True, stream_options={"include_usage": True}
    )[:-1]
    assert chunks[0]["prompt_token_ids"] == prompt_ids({"messages": HELLO})
    pieces = [chunk["choices"][0] for chunk in chunks if chunk["choices"]][1:]
    assert [token for piece in pieces for token in piece["token_ids"]] == [*b"hello", EOS]
    assert all(len(entry["top_logprobs"]) == 2 for piece in pieces for entry in piece["logprobs"]["content"])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 6


def test_empty_chunks_of_withheld_tool_calls_are_dropped_but_counted(gateway: Running) -> None:
    gateway.engine.replies = [Scripted("so: ", [("add", '{"a": 1}'), ("add", '{"a": 2}')])]
    chunks = gateway.stream(tools=[TOOL])[:-1]
    assert all(chunk["choices"][0]["delta"] or chunk["choices"][0]["finish_reason"] for chunk in chunks)
    row = only(gateway)
    assert row.reply["content"] == "so: "
    assert [call["function"] for call in row.reply["tool_calls"]] == [
        {"name": "add", "arguments": '{"a": 1}'},
        {"name": "add", "arguments": '{"a": 2}'},
    ]
    assert len(row.token_ids) == len(row.logprobs) == len(gateway.engine.replies[0].text.encode()) + 1
    assert (row.finish_reason, list(row.tools)) == ("tool_calls", [TOOL])


def test_streamed_and_whole_tool_calls_are_recorded_alike(gateway: Running) -> None:
    gateway.engine.replies = [Scripted("", [("add", '{"a": 1}')])]
    gateway.stream(tools=[TOOL])
    gateway.chat(tools=[TOOL])
    streamed, whole = (dict(row.reply) for row in gateway.interactions)
    for reply in (streamed, whole):
        assert reply["tool_calls"][0].pop("id").startswith("chatcmpl-tool-")
    assert streamed == whole
    assert streamed["content"] is None


@pytest.mark.parametrize("stream", [True, False])
def test_every_choice_is_an_interaction(gateway: Running, stream: bool) -> None:
    gateway.engine.replies = lambda body, choice: "abc"[: choice + 1]
    response = gateway.chat(n=3, stream=stream)
    response_id = events(response)[0]["id"] if stream else response.json()["id"]
    rows = {row.interaction_id: row for row in gateway.interactions}
    assert set(rows) == {response_id, f"{response_id}#1", f"{response_id}#2"}
    assert [rows[key].reply["content"] for key in sorted(rows)] == ["a", "ab", "abc"]
    assert {(row.n_choices, row.quarantine) for row in rows.values()} == {(3, None)}


def test_the_record_is_there_when_the_client_sees_the_end(gateway: Running) -> None:
    gateway.engine.replies = lambda body, choice: "ab" if choice else "a"
    gateway.engine.token_delay = 0.05
    seen = 0
    with (
        gateway.client() as client,
        client.stream(
            "POST", "/v1/chat/completions", json={"model": "agent", "messages": HELLO, "stream": True, "n": 2}
        ) as response,
    ):
        for line in response.iter_lines():
            chunk = json.loads(line[6:]) if line.startswith("data: {") else {"choices": []}
            for choice in chunk["choices"]:
                if choice["finish_reason"]:
                    seen += 1
                    assert chunk["id"] + ("#1" if choice["index"] else "") in {
                        row.interaction_id for row in gateway.interactions
                    }
                    assert len(gateway.interactions) == seen
    assert seen == 2


@pytest.mark.parametrize(
    ("logprobs", "reason"),
    [([-1.0, None], "no log-prob"), ([-1.0, -9999.0], "no log-prob"), ([0.5, -1.0], "not finite and <= 0")],
)
@pytest.mark.parametrize("stream", [True, False])
def test_log_probs_that_cannot_be_right_are_quarantined(
    gateway: Running, logprobs: list[float | None], reason: str, stream: bool
) -> None:
    gateway.engine.replies = [Scripted("x", logprobs=logprobs)]
    assert gateway.chat(stream=stream).status_code == 200
    row = only(gateway)
    assert row.quarantine is not None
    assert reason in row.quarantine
    assert len(row.logprobs) == 2
    assert logprobs[1] not in (None, -9999.0) or math.isnan(row.logprobs[1])


def test_sessions_and_consent_come_from_headers_or_their_twins(gateway: Running) -> None:
    headers = {"x-session-id": "s-1", "x-turn-type": "Main", "x-session-done": "YES", "x-burnish-train": "false"}
    response = gateway.chat(headers=headers, session_id="other", user="ann")
    assert response.headers["x-burnish-session"] == "s-1"
    gateway.chat(session_id="s-2", turn_type="side", session_done=True)
    first, second = gateway.interactions
    assert (first.quoted_session, first.turn_type, first.is_session_done, first.may_train, first.quoted_user) == (
        "s-1",
        "main",
        True,
        False,
        "ann",
    )
    assert (second.quoted_session, second.turn_type, second.is_session_done, second.may_train) == (
        "s-2",
        "side",
        True,
        True,
    )
    assert not {"session_id", "turn_type", "session_done"} & set(gateway.engine.requests[-1])


def test_a_client_does_not_choose_its_response_id(gateway: Running) -> None:
    gateway.chat(request_id="mine", seed=12345678901234567)
    assert "request_id" not in gateway.engine.requests[-1]
    assert "mine" not in only(gateway).interaction_id


@pytest.mark.parametrize(
    "body",
    [
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"regex": "a+"}},
        {"structured_outputs": {"choice": ["a", "b"]}},
        {"tools": [TOOL], "tool_choice": "required"},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "add"}}},
        {"tools": [TOOL], "parallel_tool_calls": False},
        {"tools": [{"type": "function", "function": {"name": "add", "strict": True}}]},
        {"logit_bias": {"65": 5}},
        {"min_tokens": 3},
        {"top_p": 0.9},
        {"temperature": 0},
    ],
)
def test_sampling_that_a_learner_cannot_reproduce_is_not_plain(gateway: Running, body: dict[str, object]) -> None:
    gateway.chat(**body)
    assert not only(gateway).sampling.is_plain


@pytest.mark.parametrize(
    "body", [{}, {"tools": [TOOL]}, {"response_format": {"type": "text"}, "top_k": -1, "top_p": None}]
)
def test_ordinary_sampling_is_plain(gateway: Running, body: dict[str, object]) -> None:
    gateway.chat(**body)
    assert only(gateway).sampling.is_plain


def test_nothing_of_a_body_is_kept_after_its_reply(gateway: Running) -> None:
    """An agent sends its tools with every request. A cache of them once held up to 8 GiB of clients' texts."""
    mark = "a tool of mine"
    tool = {"type": "function", "function": {"name": "add", "description": mark + "x" * 100_000}}
    for _ in range(2):
        assert gateway.chat(tools=[tool]).status_code == 200
    gateway.engine.requests.clear()
    gc.collect()
    caches = [each for each in gc.get_objects() if type(each) is functools._lru_cache_wrapper]
    held = [each for cache in caches for each in gc.get_referents(cache) if isinstance(each, dict)]
    assert mark not in repr(held)


def test_hidden_reasoning_is_asked_for_and_withheld(gateway: Running) -> None:
    body = gateway.chat(include_reasoning=False, logprobs=True).json()
    assert gateway.engine.requests[-1]["include_reasoning"] is True
    assert body["choices"][0]["logprobs"] is None
    assert "reasoning" not in body["choices"][0]["message"]


def test_the_openai_client_works(gateway: Running) -> None:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.secrets["talker"], max_retries=0) as client:
        whole = client.chat.completions.create(model="agent", messages=[{"role": "user", "content": "hi"}])
        assert whole.choices[0].message.content == "hello"
        stream = client.chat.completions.create(
            model="agent@v1", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "hello"
        assert {"agent", "agent@v1", "agent@v2", "base"} <= {model.id for model in client.models.list()}
        assert client.models.retrieve("agent@v1").id == "agent@v1"
        with pytest.raises(openai.NotFoundError) as missing:
            client.chat.completions.create(model="agent@v9", messages=[{"role": "user", "content": "hi"}])
        assert missing.value.code == "model_not_found"
    assert [row.version for row in gateway.interactions] == [2, 1]


def test_the_base_answers_and_is_never_trained(gateway: Running) -> None:
    assert gateway.chat(model="base").headers["x-burnish-version"] == "base"
    assert gateway.chat(model="second").headers["x-burnish-version"] == "second@v0"
    base, second = gateway.interactions
    assert (base.agent, base.may_train) == ("base", False)
    assert (second.agent, second.version, second.may_train) == ("second", 0, True)
    assert [sent["model"] for sent in gateway.engine.requests] == ["base", "base"]


def test_health_and_readiness(gateway: Running) -> None:
    assert httpx.get(f"{gateway.url}/healthz", headers={"host": "10.1.2.3"}).json() == {"status": "ok"}
    assert httpx.get(f"{gateway.url}/readyz").json() == {"status": "ready", "warnings": []}
    gateway.engine.stop()
    assert httpx.get(f"{gateway.url}/readyz").status_code == 503


@pytest.mark.parametrize("stream", [True, False])
def test_reasoning_has_both_names_and_is_recorded(gateway: Running, stream: bool) -> None:
    """Harnesses read `reasoning` or `reasoning_content`. Ids and log-probs cover the reasoning as well."""
    gateway.engine.replies = [Scripted("42", reasoning="let me see")]
    response = gateway.chat(stream=stream)
    bodies = events(response)[:-1] if stream else [response.json()]
    pieces = [choice["delta" if stream else "message"] for body in bodies for choice in body["choices"]]
    for name in ("reasoning", "reasoning_content"):
        assert "".join(piece.get(name) or "" for piece in pieces) == "let me see"
    assert "".join(piece.get("content") or "" for piece in pieces) == "42"
    row = only(gateway)
    assert (row.reply["content"], row.reply["reasoning"]) == ("42", "let me see")
    assert len(row.token_ids) == len(row.logprobs) > len("42let me see")
    assert row.quarantine is None


def test_parts_of_any_kind_are_passed_on_as_they_came(gateway: Running) -> None:
    parts = [
        {"type": "text", "text": "what is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    assert gateway.chat(messages=[{"role": "user", "content": parts}]).status_code == 200
    assert gateway.engine.requests[-1]["messages"] == [{"role": "user", "content": parts}]
    assert only(gateway).messages == [{"role": "user", "content": parts}]


@pytest.mark.parametrize(
    "messages", [[{"role": "user", "content": "x" * 40_000}, {"content": "no role"}], ["x" * 40_000]]
)
def test_what_a_long_body_gets_wrong_is_named_as_well(gateway: Running, messages: list[object]) -> None:
    """The engine validates long bodies. The gateway explains its refusal in its own words."""
    gateway.engine.failure = None
    response = gateway.chat(messages=messages)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_value")
    assert response.json()["error"]["param"].startswith("messages[")
