"""Responses' fields, items and tools in chat form, and pieces of a reply as items: pure functions, no gateway."""

import json
from typing import Any

import msgspec
import pytest

from burnish.server.gateway.dialects.responses import custom_tools, encrypted_reasoning, logprobs
from burnish.server.gateway.dialects.responses import local_shell as shell
from burnish.server.gateway.dialects.responses.input import Conversation
from burnish.server.gateway.dialects.responses.output import Output
from burnish.server.gateway.dialects.responses.request import parse
from burnish.server.gateway.dialects.responses.tools import Kind
from burnish.wire.chunks import CallPiece, Choice, Function, Piece
from burnish.wire.draft import Draft

Tree = dict[str, Any]
FUNCTION = {"type": "function", "name": "add", "parameters": {"type": "object"}}
CUSTOM = {"type": "custom", "name": "apply_patch", "description": "Edits files."}


def chat_of(**body: Any) -> Tree:
    """The chat completion that a body becomes, without the salt of the engine's cache."""
    call = parse(msgspec.json.encode({"model": "agent", "input": "hi", **body}))
    tree: Tree = msgspec.json.decode(call.for_engine("agent@v1", "default"))
    del tree["cache_salt"]
    return tree


def messages_of(*items: Any, instructions: str | None = None) -> list[Tree]:
    return Conversation(instructions).read([msgspec.Raw(msgspec.json.encode(item)) for item in items])


def call_of(call_id: str, name: str, arguments: str) -> Tree:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_texts_become_plain_messages() -> None:
    assert messages_of(
        {"role": "developer", "content": "be kind"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "Hello."}]},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        instructions="be brief",
    ) == [
        {"role": "system", "content": "be brief"},
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "no"},
    ]


def test_images_and_sound_go_on() -> None:
    parts = [
        {"type": "input_text", "text": "what is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]
    (message,) = messages_of({"role": "user", "content": parts})
    assert message["content"] == [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]


def test_neighbours_of_one_reply_are_one_message() -> None:
    assert messages_of(
        {"role": "user", "content": "go"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so: "}]},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":  1}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin\n"},
        {
            "type": "local_shell_call",
            "id": "lsh_1",
            "call_id": "c3",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
        },
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "done"}]},
        {"type": "local_shell_call_output", "id": "lsh_1", "output": "a.txt"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ready"}]},
    ) == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "so: ",
            "reasoning": "hm",
            "tool_calls": [
                call_of("c1", "add", '{"a":  1}'),
                call_of("c2", "apply_patch", '{"input": "*** Begin\\n"}'),
                call_of("c3", "local_shell", '{"command": ["ls"]}'),
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": "done"},
        {"role": "tool", "tool_call_id": "c3", "content": "a.txt"},
        {"role": "assistant", "content": "ready"},
    ]


def test_reasoning_that_is_not_ours_is_no_message() -> None:
    foreign = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "gAAAAAB"}
    assert messages_of({"role": "user", "content": "hi"}, foreign) == [{"role": "user", "content": "hi"}]
    assert [encrypted_reasoning.opened(text) for text in (None, "", "gAAA", "burnish:!", "burnish:/w==")] == [""] * 5
    assert encrypted_reasoning.opened(encrypted_reasoning.closed("hm 🙂")) == "hm 🙂"


REPLIES = [
    [Piece(content="Hello "), Piece(content="you")],
    [Piece(content="")],
    [Piece(reasoning="hm"), Piece(content="so"), Piece(tool_calls=[CallPiece(0, "c0", Function("add", '{"a" : 1}'))])],
    [
        Piece(tool_calls=[CallPiece(0, "c0", Function("add"))]),
        Piece(tool_calls=[CallPiece(0, None, Function(None, "{}"))]),
        Piece(tool_calls=[CallPiece(1, "c1", Function("add", '{"b": "ü'))]),
        Piece(tool_calls=[CallPiece(1, None, Function(None, '"}'))]),
    ],
    [Piece(content="a"), Piece(tool_calls=[CallPiece(0, "c0", Function("add", "{}"))]), Piece(content="b")],
    [Piece(reasoning_content="only "), Piece(reasoning="thought")],
    [Piece(tool_calls=[CallPiece(0, "c0", Function("apply_patch", '{"input": "one\\n\\"two\\" ü"}'))])],
    [Piece(tool_calls=[CallPiece(0, "c0", Function("local_shell", '{"command": ["ls", "-l"], "timeout_ms": 5}'))])],
    [Piece(tool_calls=[CallPiece(0, "c0", Function("add", "not json"))])],
]


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("pieces", REPLIES)
def test_a_reply_that_is_sent_back_is_what_was_recorded(pieces: list[Piece], is_sealed: bool) -> None:
    draft = Draft(0)
    output = Output("r", {"apply_patch": Kind.CUSTOM, "local_shell": Kind.SHELL}, is_sealed=is_sealed)
    for piece in pieces:
        draft.add(Choice(0, delta=piece))
        output.add(piece, [])
    output.finish(is_complete=True)
    items = [dict(item) for item in output.trees]
    for item in items:
        if is_sealed:  # like Codex
            item.pop("id")
            if item["type"] == "reasoning":
                item.pop("content")
    assert messages_of(*items) == [draft.message]


def test_a_piece_of_a_call_that_has_ended_changes_nothing() -> None:
    output = Output("r", {}, is_sealed=False)
    for index, name in ((0, "a"), (1, "b")):
        output.add(Piece(tool_calls=[CallPiece(index, f"c{index}", Function(name, "{}"))]), [])
    assert output.add(Piece(tool_calls=[CallPiece(0, None, Function(None, "late"))]), []) == []
    assert [item["arguments"] for item in output.trees] == ["{}", "{}"]


TEXTS = ["", "plain", 'q"uo\\te\n\t\r\b\f/', "ü🙂\u2028", "\x00\x1f", '"}', "\\u0041"]


@pytest.mark.parametrize("escape", [True, False])
@pytest.mark.parametrize("text", TEXTS)
def test_free_text_comes_out_as_it_is_written(text: str, escape: bool) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=escape)
    for step in (1, 2, 7, 1000):
        reader = custom_tools.Freeform()
        got = [reader.feed(arguments[at : at + step]) for at in range(0, len(arguments), step)]
        assert "".join(got) == text
        assert reader.end() == ""
    assert json.loads(custom_tools.arguments_of(text)) == {"input": text}


def test_free_text_is_incremental() -> None:
    reader = custom_tools.Freeform()
    assert [reader.feed(piece) for piece in (' {"input"', ': "a', "b\\", "nc", "\\ud83d", "\\ude42", 'd"', "}")] == [
        *("", "a", "b", "\nc", "", "🙂", "d", "")
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", ""),
        ("*** Begin Patch", "*** Begin Patch"),
        ('{"patch": "x"}', '{"patch": "x"}'),
        ('{"why": "so", "input": "x"}', "x"),
        ('{"input": 7}', '{"input": 7}'),
        ('{"input": "cut \\', "cut \\"),
        ('{"input": "cut \\u00', "cut \\u00"),
        ('{"input": "bad \\q and more than twelve"}', "bad \\q and more than twelve"),
        ('{"input": "half \\ud83d, no more of it"}', "half \\ud83d, no more of it"),
        ('{"input": "low \\ude42"}', "low \ufffd"),
        ('{"why": 1, "input": "low \\ude42"}', "low \ufffd"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_free_text_that_is_malformed_is_kept(arguments: str, text: str) -> None:
    reader = custom_tools.Freeform()
    assert "".join([*map(reader.feed, arguments[:200]), reader.feed(arguments[200:]), reader.end()]) == text


@pytest.mark.parametrize("arguments", ["", "{", "[]", '{"command": "ls"}', '{"command": [1]}', "[" * 100_000])
def test_what_is_no_command_is_an_empty_one(arguments: str) -> None:
    assert shell.action_of(arguments)["command"] == []


def test_fields_get_their_chat_names() -> None:
    schema = {"type": "json_schema", "name": "s", "schema": {"type": "object"}, "strict": True}
    body = chat_of(
        stream=True,
        max_output_tokens=7,
        reasoning={"effort": "low", "summary": "auto"},
        text={"format": schema, "verbosity": "low"},
        top_logprobs=2,
        temperature=0.5,
        seed=1,
        stop=["x"],
        top_k=5,
        include=["message.output_text.logprobs", "reasoning.encrypted_content"],
        metadata={"a": "b"},
        store=False,
        user="ann",
        client_metadata={"x": "y"},
    )
    assert body == {
        "model": "agent@v1",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 7,
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": True},
        },
        "logprobs": True,
        "top_logprobs": 2,
        "return_token_ids": True,
        "temperature": 0.5,
        "seed": 1,
        "stop": ["x"],
        "top_k": 5,
    }


def test_little_is_asked_where_little_is_given() -> None:
    expected = {"model": "agent@v1", "messages": [{"role": "user", "content": "hi"}], "stream": False}
    expected |= {"logprobs": True, "return_token_ids": True}
    assert chat_of() == expected
    assert chat_of(tools=[], tool_choice="auto", parallel_tool_calls=True, reasoning=None, text=None) == expected
    assert chat_of(tools=[{"type": "web_search"}], tool_choice="auto", text={"format": {"type": "text"}}) == expected


def test_tools_become_functions() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}
    strict = FUNCTION | {"name": "sub", "strict": True, "description": "Subtracts."}
    tools = [FUNCTION | {"strict": False}, strict, CUSTOM | {"format": grammar}, {"type": "local_shell"}]
    body = chat_of(tools=[*tools, {"type": "web_search"}], parallel_tool_calls=False)
    assert [tool["type"] for tool in body["tools"]] == ["function"] * 4
    add, sub, patch, local_shell = (tool["function"] for tool in body["tools"])
    assert add == {"name": "add", "parameters": {"type": "object"}}
    assert sub == {"name": "sub", "parameters": {"type": "object"}, "strict": True, "description": "Subtracts."}
    assert patch["description"] == "Edits files.\n\nThe input follows this lark grammar:\nstart: /x/"
    assert patch["parameters"]["required"] == ["input"]
    assert local_shell["name"] == "local_shell"
    assert body["parallel_tool_calls"] is False


@pytest.mark.parametrize(
    ("choice", "expected", "names"),
    [
        ("auto", "auto", {"add", "apply_patch"}),
        ("none", "none", {"add", "apply_patch"}),
        ("required", "required", {"add", "apply_patch"}),
        (
            {"type": "function", "name": "add"},
            {"type": "function", "function": {"name": "add"}},
            {"add", "apply_patch"},
        ),
        (
            {"type": "custom", "name": "apply_patch"},
            {"type": "function", "function": {"name": "apply_patch"}},
            {"add", "apply_patch"},
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "add"}, {"type": "mcp"}],
            },
            "required",
            {"add"},
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}, None, set()),
    ],
)
def test_the_choice_of_a_tool(choice: Any, expected: Any, names: set[str]) -> None:
    body = chat_of(tools=[FUNCTION, CUSTOM], tool_choice=choice)
    assert body.get("tool_choice") == expected
    assert {tool["function"]["name"] for tool in body.get("tools", ())} == names


def test_what_has_no_effect_is_named() -> None:
    call = parse(
        msgspec.json.encode(
            {
                "model": "agent",
                "input": [
                    {"role": "user", "content": "hi"},
                    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
                ],
                "tools": [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}, {"type": "web_search"}],
                "truncation": "auto",
                "text": {"verbosity": "low"},
                "reasoning": {"summary": "auto"},
                "messages": [],
                "max_tokens": 3,
                "moderation": None,
                "a\r\nb": 1,
                "store": True,
                "service_tier": "auto",
            }
        )
    )
    assert call.ignored == (
        *("tools.web_search", "tools.mcp", "input.web_search_call", "messages", "max_tokens"),
        *("text.verbosity", "reasoning.summary", "truncation"),
    )


@pytest.mark.parametrize(
    ("body", "session", "field"),
    [
        ({"prompt_cache_key": "p"}, "p", "prompt_cache_key"),
        ({"metadata": {"thread_id": "t"}, "prompt_cache_key": "p"}, "t", "metadata.thread_id"),
        ({"client_metadata": {"session_id": "s", "thread_id": "t"}}, "t", "client_metadata.thread_id"),
        ({"client_metadata": {"session_id": 7}}, None, None),
        ({"client_metadata": "x", "session_id": "s"}, "s", "session_id"),
    ],
)
def test_the_session_is_found_in_the_body(body: Tree, session: str | None, field: str | None) -> None:
    call = parse(msgspec.json.encode({"model": "agent", "input": "hi", "safety_identifier": "ann", **body}))
    assert (call.said.session, call.said.session_field, call.quoted_user) == (session, field, "ann")


def test_logprobs_are_those_of_the_text() -> None:
    words = ["<think>", "hm", "</think>", "Hel", "lo", "<eos>"]
    content = [{"token": word, "logprob": -0.5, "bytes": list(word.encode()), "top_logprobs": []} for word in words]
    content[1]["logprob"] = None
    entries = logprobs.entries_of(msgspec.json.encode({"choices": [{"logprobs": {"content": content}}]}))
    assert [entry["token"] for entry in entries] == [word for word in words if word != "hm"]
    assert [entry["token"] for entry in logprobs.spoken("Hello", entries)] == ["Hel", "lo"]
    assert logprobs.spoken("", entries) == []
    assert logprobs.entries_of(b'{"choices": []}') == logprobs.entries_of(b'{"choices": [{"logprobs": null}]}') == []
