"""Anthropic's messages and chat completions, translated in both directions: pure functions, no server."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from burnish.errors import EngineUnavailable, RequestError
from burnish.records import Interaction
from burnish.server.gateway.dialects.messages import metadata
from burnish.server.gateway.dialects.messages.renderer import MessageRenderer
from burnish.server.gateway.dialects.messages.request import Translation, parse
from burnish.server.ingest.linking import Trace
from burnish.wire import chunks as chunk
from burnish.wire.draft import Draft
from tests.factories import interaction

ADD = {"name": "add", "description": "adds", "input_schema": {"type": "object"}}
HI = {"role": "user", "content": "hi"}
event = TypeAdapter[RawMessageStreamEvent](RawMessageStreamEvent)


def body(*messages: Any, **fields: Any) -> bytes:
    return json.dumps({"model": "agent", "max_tokens": 9, "messages": messages or [HI], **fields}).encode()


def chat(*messages: Any, **fields: Any) -> list[Any]:
    return Translation(body(*messages, **fields)).messages


def sent(**fields: Any) -> dict[str, Any]:
    """The engine's request for a body with `fields`."""
    tree: dict[str, Any] = msgspec.json.decode(parse(body(**fields)).for_engine("agent@v2", "default"))
    return tree


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def use(call_id: str, arguments: Any, name: str = "add") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_use_id": call_id,
        **({"content": content} if content is not None else {}),
        **more,
    }


def test_system_is_the_first_message_and_may_come_again() -> None:
    blocks = [text("be kind", cache_control={"type": "ephemeral"}), text("be brief")]
    later = {"role": "system", "content": [text("now in French")]}
    assert chat(HI, later, system=blocks) == [
        {"role": "system", "content": "be kind\nbe brief"},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "now in French"},
    ]
    assert chat(system="s")[0] == {"role": "system", "content": "s"}
    assert chat(system="") == chat(system=[]) == chat() == [HI]


@pytest.mark.parametrize("cch", ["00000", "a1b2c"])
def test_a_changing_attribution_line_does_not_reach_the_prompt(cch: str) -> None:
    line = f"x-anthropic-billing-header: cc_version=2.1.37.f3d; cc_entrypoint=cli; cch={cch};"
    assert chat(system=[text(line), text("You are Claude Code")])[0]["content"] == "You are Claude Code"
    assert chat(system=f"{line}\nYou are Claude Code")[0]["content"] == "You are Claude Code"
    assert chat(system=[text(line)]) == [HI]


def test_texts_are_joined_and_images_keep_their_place() -> None:
    assert chat(user(text("a"), text("b"))) == [{"role": "user", "content": "a\nb"}]
    png = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    far = {"type": "image", "source": {"type": "url", "url": "data:image/png;base64,BBBB"}}
    (message,) = chat(user(text("see"), png, text("and"), far))
    assert message["content"] == [
        text("see"),
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        text("and"),
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,BBBB"}},
    ]


def test_documents_and_search_results_are_text() -> None:
    plain = {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "D"}}
    blocks = {"type": "document", "source": {"type": "content", "content": [text("E")]}}
    found = {"type": "search_result", "source": "https://x.example", "title": "S", "content": [text("F")]}
    assert chat(user(plain, blocks, found))[0]["content"] == "T\nD\nE\nS\nhttps://x.example\nF"
    tools = result(
        "c1", [{"type": "tool_reference", "tool_name": "add"}, {"type": "tool_reference", "tool_name": "sub"}]
    )
    assert chat(user(tools))[0]["content"] == "add\nsub"


def test_parallel_results_come_before_what_was_said_with_them() -> None:
    png = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    message = user(
        text("first"),
        result("c1", "one"),
        result("c2", [text("two"), text("lines")], is_error=True),
        result("c3"),
        result("c4", [text("look"), png]),
        text("last"),
    )
    assert chat(message) == [
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two\nlines", "is_error": True},
        {"role": "tool", "tool_call_id": "c3", "content": ""},
        {
            "role": "tool",
            "tool_call_id": "c4",
            "content": [text("look"), {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}],
        },
        {"role": "user", "content": "first\nlast"},
    ]
    assert chat(user(result("c1", "one"))) == [{"role": "tool", "tool_call_id": "c1", "content": "one"}]


def test_an_assistants_blocks_are_one_message() -> None:
    message = assistant(
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "redacted_thinking", "data": "xx"},
        text("so"),
        text(": "),
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": {"type": "error"}},
        use("c1", {"a": 1}),
        use("c2", {}),
    )
    translation = Translation(body(HI, message))
    assert translation.messages[1] == {
        "role": "assistant",
        "content": "so: ",
        "reasoning": "hm",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
            {"id": "c2", "type": "function", "function": {"name": "add", "arguments": "{}"}},
        ],
    }
    assert translation.ignored == (
        "content.redacted_thinking",
        "content.server_tool_use",
        "content.web_search_tool_result",
    )
    assert chat(HI, assistant(use("c1", {})))[1]["content"] is None
    assert chat(HI, assistant(), HI)[1] == {"role": "assistant", "content": ""}


def test_a_last_assistant_message_is_continued() -> None:
    asked = msgspec.json.decode(
        parse(body(HI, {"role": "assistant", "content": "The answer is ("})).for_engine("m", "default")
    )
    assert (asked["add_generation_prompt"], asked["continue_final_message"]) == (False, True)
    assert "continue_final_message" not in sent()


def test_consecutive_messages_of_one_role_stay_apart() -> None:
    assert chat(HI, HI) == [HI, HI]


def test_tools_and_their_choice() -> None:
    asked = sent(
        tools=[ADD, {"type": "web_search_20250305", "name": "web_search"}, {**ADD, "type": "custom", "name": "b"}]
    )
    assert asked["tools"] == [
        {"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "b", "description": "adds", "parameters": {"type": "object"}}},
    ]
    for choice, wanted in (
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "add"}, {"type": "function", "function": {"name": "add"}}),
    ):
        asked = sent(tools=[ADD], tool_choice=choice)
        assert asked["tool_choice"] == wanted
        assert "parallel_tool_calls" not in asked
        assert (
            sent(tools=[ADD], tool_choice=choice | {"disable_parallel_tool_use": True})["parallel_tool_calls"] is False
        )
    assert "tool_choice" not in sent(tool_choice={"type": "auto"})


def test_the_other_fields() -> None:
    schema = {"type": "object"}
    asked = sent(temperature=0.5, top_p=0.9, top_k=40, stop_sequences=["END"], stream=True)
    assert {
        name: asked[name] for name in ("max_tokens", "temperature", "top_p", "top_k", "stop", "stream_options")
    } == {
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "stop": ["END"],
        "stream_options": {"include_usage": True},
    }
    for fields in (
        {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
        {"output_format": {"type": "json_schema", "schema": schema}},
    ):
        wanted = {"type": "json_schema", "json_schema": {"name": "output", "schema": schema}}
        assert sent(**fields)["response_format"] == wanted
        assert parse(body(**fields)).sampling.is_constrained
    plain = sent()
    assert plain["return_token_ids"] is plain["logprobs"] is True
    assert not {"stream_options", "stop", "tools", "response_format", "temperature", "metadata"} & set(plain)


def test_what_nobody_acts_on_is_told() -> None:
    call = parse(
        body(
            tools=[
                ADD,
                {"type": "web_search_20250305", "name": "web_search"},
                {"type": "bash_20250124", "name": "bash"},
            ],
            service_tier="auto",
            container="c",
            context_management={},
            mcp_servers=[],
            cache_control={"type": "ephemeral"},
            thinking={"type": "enabled", "budget_tokens": 1024},
            output_config={"effort": "low"},
            diagnostics=None,
            **{"a\r\nx-evil: 1": 1},
        )
    )
    assert set(call.ignored) == {
        "service_tier",
        "container",
        "context_management",
        "mcp_servers",
        "tools.web_search_20250305",
        "tools.bash_20250124",
        "thinking.budget_tokens",
        "output_config.effort",
    }
    assert len(parse(body(**{f"unknown_{n}": 1 for n in range(1000)})).ignored) == 16


@pytest.mark.parametrize(
    ("user_id", "expected"),
    [
        ("user_ab12_account_c-d_session_e-f", ("user_ab12_account_c-d", "e-f")),
        ("user_ab12_account__session_e-f", ("user_ab12_account_", "e-f")),
        ('{"session_id":"s","device_id":"d","account_uuid":""}', ('{"device_id":"d"}', "s")),
        ('{"session_id":"s"}', (None, "s")),
        ('{"device_id":"d"}', ('{"device_id":"d"}', None)),
        ("{broken", ("{broken", None)),
        ("ann", ("ann", None)),
        ("ann_session_", ("ann_session_", None)),
    ],
)
def test_who_and_which_session(user_id: str, expected: tuple[str | None, str | None]) -> None:
    assert metadata.split(user_id) == expected
    call = parse(body(metadata={"user_id": user_id}))
    assert (call.quoted_user, call.said.session) == expected
    assert call.said.session_field == (metadata.FIELD if expected[1] else None)


class Engine:
    """Chunks as vLLM writes them, given to a renderer and to the record at the same time."""

    def __init__(self, **options: Any) -> None:
        self.renderer = MessageRenderer("agent@v2", "r1", **{"shows_thinking": True, **options})
        self.draft = Draft(0)

    def stream(self, *pieces: Any, finish: str | None = "stop", stop: Any = None, usage: Any = None) -> list[Any]:
        """The events of a reply with these deltas."""
        chunks: list[Any] = [{"id": "x", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]
        chunks[0]["prompt_token_ids"] = [1, 2, 3]
        chunks += [{"id": "x", "choices": [{"index": 0, "delta": piece, "token_ids": [7]}]} for piece in pieces]
        if finish:
            chunks[-1]["choices"][0] |= {"finish_reason": finish, "stop_reason": stop}
        if usage:
            chunks.append({"id": "x", "choices": [], "usage": usage})
        out = b"".join(self.feed(tree) for tree in chunks) + self.renderer.end()
        return self.events(out)

    def feed(self, tree: Any) -> bytes:
        data = json.dumps(tree).encode()
        taken = chunk.read(data)
        for choice in taken.choices:
            self.draft.add(choice)
        return self.renderer.chunk(data, taken)

    def whole(self, message: Any, finish: str = "stop", stop: Any = None, usage: Any = None) -> Any:
        choice = {"index": 0, "message": message, "finish_reason": finish, "stop_reason": stop, "token_ids": [7]}
        data = json.dumps({"id": "x", "choices": [choice], "usage": usage}).encode()
        taken = chunk.read(data)
        self.draft.add(taken.choices[0])
        tree = json.loads(self.renderer.whole(data, taken))
        Message.model_validate(tree, strict=True)
        return tree

    @staticmethod
    def events(out: bytes) -> list[Any]:
        trees = []
        for part in out.decode().split("\n\n")[:-1]:
            name, data = part.split("\n")
            tree = json.loads(data.removeprefix("data: "))
            assert name == f"event: {tree['type']}"
            event.validate_python(tree)
            trees.append(tree)
        return trees


def call_piece(index: int, arguments: str | None = None, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments, **more.pop("function", {})}, **more}]}


def gathered(events: list[Any]) -> dict[str, Any]:
    """The message that a client builds from a stream. Checks the rules of the events."""
    head, *rest, delta, last = events
    assert (head["type"], delta["type"], last) == ("message_start", "message_delta", {"type": "message_stop"})
    blocks: list[Any] = []
    is_open = False
    for tree in rest:
        match tree["type"]:
            case "content_block_start":
                assert not is_open and tree["index"] == len(blocks)
                blocks.append(dict(tree["content_block"], pieces=""))
                is_open = True
            case "content_block_delta":
                assert is_open and tree["index"] == len(blocks) - 1
                piece = tree["delta"]
                blocks[-1]["pieces"] += piece.get("text") or piece.get("thinking") or piece.get("partial_json") or ""
            case "content_block_stop":
                assert is_open and tree["index"] == len(blocks) - 1
                is_open = False
    assert not is_open
    for block in blocks:
        pieces = block.pop("pieces")
        if block["type"] == "tool_use":
            block["input"] = json.loads(pieces or "{}")
        else:
            block[block["type"]] = pieces
    return {**head["message"], **delta["delta"], "usage": delta["usage"], "content": blocks}


THOUGHT = {"type": "thinking", "thinking": "hm, so", "signature": ""}
PIECES = [
    {"reasoning": "hm, "},
    {"reasoning": "so"},
    {"content": "Let "},
    {"content": "me: "},
    call_piece(0, id="c1", function={"name": "add"}),
    call_piece(0, '{"a"'),
    {},
    call_piece(0, ": [1, 2]}"),
    call_piece(1, id="c2", function={"name": "add"}),
    call_piece(1, "{}"),
    {},
]


def test_a_stream_is_blocks_one_after_the_other() -> None:
    usage = {"prompt_tokens": 30, "completion_tokens": 11, "prompt_tokens_details": {"cached_tokens": 16}}
    events = Engine().stream(*PIECES, finish="tool_calls", usage=usage)
    message = gathered(events)
    assert message["content"] == [THOUGHT, text("Let me: "), use("c1", {"a": [1, 2]}), use("c2", {})]
    assert (message["id"], message["model"], message["stop_reason"]) == ("msg_r1", "agent@v2", "tool_use")
    assert events[0]["message"]["usage"]["input_tokens"] == 3
    assert message["usage"] == {
        "input_tokens": 14,
        "output_tokens": 11,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 16,
    }
    deltas = [tree["delta"] for tree in events if tree["type"] == "content_block_delta"]
    assert [delta["text"] for delta in deltas if delta["type"] == "text_delta"] == ["Let ", "me: "]
    assert [delta["type"] for delta in deltas].count("signature_delta") == 1


def test_every_piece_leaves_at_once() -> None:
    engine = Engine()
    assert len(engine.events(engine.feed({"id": "x", "choices": [{"index": 0, "delta": {"role": "assistant"}}]}))) == 1
    for words, n_events in (("a", 2), ("b", 1)):
        tree = {"id": "x", "choices": [{"index": 0, "delta": {"content": words}}]}
        assert len(engine.events(engine.feed(tree))) == n_events


def test_counts_are_made_where_the_engine_gives_none() -> None:
    assert gathered(Engine().stream({"content": "a"}, {}))["usage"]["output_tokens"] == 2


def test_reasoning_that_nobody_asked_for_is_withheld_and_recorded() -> None:
    streaming, whole = Engine(shows_thinking=False), Engine(shows_thinking=False)
    assert gathered(streaming.stream({"reasoning": "hm"}, {"content": "a"}))["content"] == [text("a")]
    assert whole.whole({"role": "assistant", "content": "a", "reasoning": "hm"})["content"] == [text("a")]
    assert streaming.draft.message["reasoning"] == whole.draft.message["reasoning"] == "hm"


@pytest.mark.parametrize(
    ("thinking", "is_shown"),
    [
        (None, False),
        ({"type": "disabled"}, False),
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "adaptive"}, True),
        ({"type": "adaptive", "display": "omitted"}, False),
    ],
)
def test_thinking_decides_whether_reasoning_is_shown(thinking: Any, is_shown: bool) -> None:
    renderer = parse(body(thinking=thinking)).render("agent@v2", "r1")
    data = json.dumps({"id": "x", "choices": [{"index": 0, "delta": {"reasoning": "hm"}}]}).encode()
    assert (b"thinking_delta" in renderer.chunk(data, chunk.read(data))) == is_shown


@pytest.mark.parametrize(
    ("finish", "stop", "calls", "expected"),
    [
        ("stop", None, [], ("end_turn", None)),
        ("stop", 151645, [], ("end_turn", None)),
        ("stop", "END", [], ("stop_sequence", "END")),
        ("length", None, [], ("max_tokens", None)),
        ("tool_calls", None, [("c1", "{}")], ("tool_use", None)),
        ("stop", None, [("c1", "{}")], ("tool_use", None)),  # a forced tool
        ("length", None, [("c1", '{"a')], ("max_tokens", None)),
        ("tool_calls", None, [], ("end_turn", None)),
        ("repetition", None, [], ("end_turn", None)),
    ],
)
def test_stop_reasons(finish: str, stop: Any, calls: list[tuple[str, str]], expected: tuple[str, str | None]) -> None:
    made = [
        {"index": at, "id": call_id, "type": "function", "function": {"name": "add", "arguments": arguments}}
        for at, (call_id, arguments) in enumerate(calls)
    ]
    whole = Engine().whole({"role": "assistant", "content": "a", "tool_calls": made}, finish, stop)
    (*_, delta, _) = Engine().stream({"content": "a", "tool_calls": made}, finish=finish, stop=stop)
    assert (whole["stop_reason"], whole["stop_sequence"]) == expected
    assert (delta["delta"]["stop_reason"], delta["delta"]["stop_sequence"]) == expected


def test_a_reply_that_the_engine_gave_up_is_an_error() -> None:
    with pytest.raises(EngineUnavailable):
        Engine().whole({"role": "assistant", "content": "a"}, "abort")
    with pytest.raises(EngineUnavailable):
        Engine().stream({"content": "a"}, finish="abort")
    with pytest.raises(EngineUnavailable, match="too early"):
        Engine().stream({"content": "a"}, finish=None)


ODD = '{"ü": "\\u00fc", "a": [1, 2.50, 1e2]}'


def as_javascript(blocks: list[Any]) -> list[Any]:
    """The same blocks after JSON.parse and JSON.stringify: a whole number has no fraction."""
    return json.loads(json.dumps(blocks).replace("100.0", "100"))  # type: ignore[no-any-return]


def turn(translation: Translation, reply: dict[str, Any]) -> Interaction:
    return replace(interaction(translation.messages), reply=reply)


@pytest.mark.parametrize("arguments", [ODD, "{}", "", "[1]", "nonsense {", '"x"'])
@pytest.mark.parametrize("content", ["so: ", "", "\n\n"])
def test_our_own_reply_sent_back_is_recognised(arguments: str, content: str) -> None:
    """The next request of a client: the blocks of the reply, decoded and encoded again, then the results."""
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}}
    message = {"role": "assistant", "content": content or None, "reasoning": "hm", "tool_calls": [call]}
    engine = Engine()
    blocks = Message.model_validate(engine.whole(message, "tool_calls")).model_dump(exclude_none=True)["content"]
    first = Translation(body(HI))
    second = Translation(body(HI, assistant(*as_javascript(blocks)), user(result("c1", "3"))))
    assert (2, Trace(turn(first, engine.draft.message)).tail) in Trace(
        turn(second, {"role": "assistant"})
    ).continuations()
    sent_back = second.messages[1]
    assert (sent_back["content"], sent_back["reasoning"]) == (engine.draft.message["content"], "hm")
    if arguments not in ("", ODD):
        assert sent_back["tool_calls"] == [call]


def test_a_streamed_reply_sent_back_is_what_was_recorded() -> None:
    engine = Engine()
    blocks = gathered(engine.stream(*PIECES, finish="tool_calls"))["content"]
    (sent_back,) = chat(HI, assistant(*blocks), HI)[1:2]
    recorded = engine.draft.message
    assert {**sent_back, "tool_calls": None} == {**recorded, "tool_calls": None}
    for back, call in zip(sent_back["tool_calls"], recorded["tool_calls"], strict=True):
        assert (back["id"], back["function"]["name"]) == (call["id"], call["function"]["name"])
        assert json.loads(back["function"]["arguments"]) == json.loads(call["function"]["arguments"])


def test_arguments_that_are_no_object_are_shown_as_such() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": '}}
    tree = Engine().whole({"role": "assistant", "content": None, "tool_calls": [call]}, "length")
    assert tree["content"] == [use("c1", {"unparsed_arguments": '{"a": '})]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "model"),
    ({"model": ""}, "model"),
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "9"}, "max_tokens"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [HI, {"role": "user", "content": 7}]}, "messages[1].content"),
    ({"messages": [user()]}, "messages[0].content"),
    ({"messages": [{"role": "system", "content": ""}]}, "messages"),
    ({"messages": [{"role": "system", "content": []}]}, "messages"),
    ({"messages": [user({"text": "x"})]}, "messages[0].content[0].type"),
    ({"messages": [user(text("a"), {"type": "text"})]}, "messages[0].content[1].text"),
    ({"messages": [user({"type": "text", "text": 7})]}, "messages[0].content[0].text"),
    ({"messages": [user({"type": "txt"})]}, "messages[0].content[0].type"),
    ({"messages": [user(use("c1", {}))]}, "messages[0].content[0].type"),
    ({"messages": [user({"type": "image"})]}, "messages[0].content[0].source"),
    ({"messages": [user({"type": "image", "source": {"type": "base64"}})]}, "messages[0].content[0].source.media_type"),
    (
        {"messages": [user({"type": "image", "source": {"type": "file", "file_id": "f"}})]},
        "messages[0].content[0].source.type",
    ),
    (
        {"messages": [user({"type": "document", "source": {"type": "base64", "data": "x"}})]},
        "messages[0].content[0].source.type",
    ),
    ({"messages": [user({"type": "tool_result"})]}, "messages[0].content[0].tool_use_id"),
    ({"messages": [user(result("c1", 7))]}, "messages[0].content[0].content"),
    ({"messages": [user(result("c1", [{"type": "text"}]))]}, "messages[0].content[0].content[0].text"),
    ({"messages": [user(result("c1", [{"type": "audio"}]))]}, "messages[0].content[0].content[0].type"),
    ({"messages": [HI, assistant(result("c1"))]}, "messages[1].content[0].type"),
    ({"messages": [HI, assistant({"type": "tool_use", "name": "add"})]}, "messages[1].content[0].id"),
    ({"messages": [HI, assistant(use("c1", [1]))]}, "messages[1].content[0].input"),
    ({"messages": [HI, assistant({"type": "thinking"})]}, "messages[1].content[0].thinking"),
    ({"system": 7}, "system"),
    ({"system": [{"type": "image"}]}, "system[0].type"),
    ({"messages": [{"role": "system", "content": [{"type": "image"}]}]}, "messages[0].content[0].type"),
    ({"tools": {}}, "tools"),
    ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
    ({"tools": [{"name": "", "input_schema": {}}]}, "tools[0].name"),
    ({"tools": [ADD, {"name": "b"}]}, "tools[1].input_schema"),
    ({"tools": [{"name": "b", "input_schema": 7}]}, "tools[0].input_schema"),
    ({"tools": [ADD], "tool_choice": {"type": "some"}}, "tool_choice.type"),
    ({"tools": [ADD], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"tools": [ADD], "tool_choice": {"type": "tool", "name": "sub"}}, "tool_choice.name"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"stream": "yes"}, "stream"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_k": 0.5}, "top_k"),
    ({"stop_sequences": "END"}, "stop_sequences"),
    ({"stop_sequences": ["a", ""]}, "stop_sequences[1]"),
    ({"thinking": {}}, "thinking.type"),
    ({"metadata": {"user_id": 7}}, "metadata.user_id"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
]


@pytest.mark.parametrize(
    "given",
    [
        b'{"a": "\xff"}',
        b'{"unparsed_arguments": "\\ud800"}',
        b'{"a": ' + b"[" * 100_000,
        b'{"unparsed_arguments": "\xff"}',
    ],
)
def test_text_that_is_none_is_refused(given: bytes) -> None:
    """Arguments are passed on unchanged, but that is no reason to trust them."""
    call = b'{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "add", "input": %s}]}' % given
    with pytest.raises(RequestError) as raised:
        parse(b'{"model": "agent", "max_tokens": 9, "messages": [%s]}' % call)
    assert raised.value.code == "invalid_json"


@pytest.mark.parametrize(("fields", "param"), BAD)
def test_wrong_fields_are_named(fields: dict[str, Any], param: str) -> None:
    tree = {"model": "agent", "max_tokens": 9, "messages": [HI], **fields}
    given = json.dumps({name: value for name, value in tree.items() if value is not None}).encode()
    with pytest.raises(RequestError) as raised:
        parse(given)
    assert raised.value.param == param
    assert str(raised.value).startswith(f"{param}:")
