"""Every route in front of the real vLLM, through the real clients: reply, sample and record are equal."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from gateways import Running, make_keys, serve, write_table
from vllm_process import VllmServer

from burnish.records import Interaction
from burnish.testing import StubEngine

pytestmark = pytest.mark.engine

SCHEMA = {"type": "object", "properties": {"x": {"enum": ["a"]}}, "required": ["x"], "additionalProperties": False}
CHAT_TOOLS: Any = [{"type": "function", "function": {"name": "pick", "strict": True, "parameters": SCHEMA}}]
FLAT_TOOLS: Any = [{"type": "function", "name": "pick", "parameters": SCHEMA, "strict": True}]
OWN_TOOLS: Any = [{"name": "pick", "input_schema": SCHEMA}]
SAID: Any = [{"role": "user", "content": "hello"}]


@pytest.fixture
def gateway(vllm_server: VllmServer, tmp_path: Path) -> Iterator[Running]:
    with serve(tmp_path, StubEngine()) as running:
        secrets, keys = make_keys()
        running.secrets.update(secrets)
        write_table(running.settings, (vllm_server.url,), keys, engine_key=vllm_server.api_key)
        yield running


@pytest.fixture
def gpt(gateway: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.secrets["talker"], timeout=120) as client:
        yield client


@pytest.fixture
def claude(gateway: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway.url, api_key=gateway.secrets["talker"], timeout=120) as client:
        yield client


def recorded(gateway: Running, response_id: str, text: str) -> Interaction:
    """The only recorded turn. Checks that it is whole and as the client got it."""
    (row,) = gateway.interactions
    assert row.interaction_id == response_id
    assert (row.quarantine, row.is_aborted) == (None, False)
    assert len(row.token_ids) == len(row.logprobs) > 0
    assert row.prompt_ids
    assert (row.reply["content"] or "") == text
    return row


@pytest.mark.parametrize("stream", [False, True])
def test_chat(gateway: Running, gpt: openai.OpenAI, stream: bool) -> None:
    if stream:
        chunks = list(gpt.chat.completions.create(model="base", messages=SAID, max_tokens=30, stream=True))
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        recorded(gateway, chunks[0].id, text)
    else:
        reply = gpt.chat.completions.create(model="base", messages=SAID, max_tokens=30)
        recorded(gateway, reply.id, reply.choices[0].message.content or "")


@pytest.mark.parametrize("stream", [False, True])
def test_text_completions(gateway: Running, gpt: openai.OpenAI, stream: bool) -> None:
    if stream:
        chunks = list(gpt.completions.create(model="base", prompt="hello", max_tokens=12, stream=True))
        recorded(gateway, chunks[0].id, "".join(choice.text for chunk in chunks for choice in chunk.choices))
    else:
        reply = gpt.completions.create(model="base", prompt="hello", max_tokens=12)
        recorded(gateway, reply.id, reply.choices[0].text)


def test_several_prompts_and_choices_are_turns_of_their_own(gateway: Running, gpt: openai.OpenAI) -> None:
    reply = gpt.completions.create(model="base", prompt=["hello", "good bye"], n=2, max_tokens=5)
    rows = {row.choice: row for row in gateway.interactions}
    assert sorted(rows) == [0, 1, 2, 3]
    for choice in reply.choices:
        assert rows[choice.index].reply["content"] == choice.text
        assert rows[choice.index].messages[0]["content"] == ("hello" if choice.index < 2 else "good bye")
        assert (rows[choice.index].quarantine, len(rows[choice.index].token_ids)) == (
            None,
            len(rows[choice.index].logprobs),
        )
    assert rows[0].prompt_ids == rows[1].prompt_ids != rows[2].prompt_ids


@pytest.mark.parametrize("stream", [False, True])
def test_responses(gateway: Running, gpt: openai.OpenAI, stream: bool) -> None:
    if stream:
        events: list[Any] = list(gpt.responses.create(model="base", input="hello", max_output_tokens=30, stream=True))
        assert events[-1].type in ("response.completed", "response.incomplete")
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert text == events[-1].response.output_text
        recorded(gateway, events[-1].response.id, text)
    else:
        reply = gpt.responses.create(model="base", input="hello", max_output_tokens=30)
        recorded(gateway, reply.id, reply.output_text)


@pytest.mark.parametrize("stream", [False, True])
def test_messages(gateway: Running, claude: anthropic.Anthropic, stream: bool) -> None:
    if stream:
        with claude.messages.stream(model="base", messages=SAID, max_tokens=30) as events:
            text = "".join(events.text_stream)
            reply = events.get_final_message()
    else:
        reply = claude.messages.create(model="base", messages=SAID, max_tokens=30)
        text = "".join(block.text for block in reply.content if block.type == "text")
    row = recorded(gateway, reply.id, text)
    assert reply.usage.output_tokens == len(row.token_ids)
    assert claude.messages.count_tokens(model="base", messages=SAID).input_tokens == len(row.prompt_ids)


@pytest.mark.parametrize("stream", [False, True])
def test_tools_on_chat(gateway: Running, gpt: openai.OpenAI, stream: bool) -> None:
    asked: Any = {"model": "base", "messages": SAID, "tools": CHAT_TOOLS, "tool_choice": "required", "max_tokens": 200}
    if stream:
        chunks = list(gpt.chat.completions.create(**asked, stream=True))
        calls = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or ()]
        shown = "".join(call.function.arguments or "" for call in calls if call.function and call.index == 0)
    else:
        reply = gpt.chat.completions.create(**asked)
        shown = reply.choices[0].message.tool_calls[0].function.arguments
    check_call(gateway, shown)


@pytest.mark.parametrize("stream", [False, True])
def test_tools_on_responses(gateway: Running, gpt: openai.OpenAI, stream: bool) -> None:
    asked: Any = {
        "model": "base",
        "input": "hello",
        "tools": FLAT_TOOLS,
        "tool_choice": "required",
        "max_output_tokens": 200,
    }
    if stream:
        events: list[Any] = list(gpt.responses.create(**asked, stream=True))
        reply = events[-1].response
    else:
        reply = gpt.responses.create(**asked)
    calls = [item for item in reply.output if item.type == "function_call"]
    check_call(gateway, calls[0].arguments)
    assert calls[0].call_id == gateway.interactions[0].reply["tool_calls"][0]["id"]


@pytest.mark.parametrize("stream", [False, True])
def test_tools_on_messages(gateway: Running, claude: anthropic.Anthropic, stream: bool) -> None:
    asked: Any = {
        "model": "base",
        "messages": SAID,
        "tools": OWN_TOOLS,
        "tool_choice": {"type": "any"},
        "max_tokens": 200,
    }
    if stream:
        with claude.messages.stream(**asked) as events:
            reply = events.get_final_message()
    else:
        reply = claude.messages.create(**asked)
    calls = [block for block in reply.content if block.type == "tool_use"]
    check_call(gateway, json.dumps(calls[0].input))
    assert reply.stop_reason == "tool_use"
    assert claude.messages.count_tokens(
        **{name: asked[name] for name in asked if name != "max_tokens"}
    ).input_tokens == len(gateway.interactions[0].prompt_ids)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "pick"}}])
def test_a_forced_tool_is_held_to_its_schema_without_being_strict(
    gateway: Running, gpt: openai.OpenAI, choice: Any
) -> None:
    tools: Any = [{"type": "function", "function": {"name": "pick", "parameters": SCHEMA}}]
    reply: Any = gpt.chat.completions.create(
        model="base", messages=SAID, tools=tools, tool_choice=choice, max_tokens=200
    )
    check_call(gateway, reply.choices[0].message.tool_calls[0].function.arguments)


def test_a_forced_tool_is_held_to_its_schema_on_responses(gateway: Running, gpt: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", "name": "pick", "parameters": SCHEMA}]
    reply = gpt.responses.create(
        model="base", input="hello", tools=tools, tool_choice="required", max_output_tokens=200
    )
    calls = [item for item in reply.output if item.type == "function_call"]
    check_call(gateway, calls[0].arguments)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "odd",
    [
        {"type": "string", "pattern": "(a)\\1"},
        {"type": "integer", "minimum": 3, "maximum": 1},
        {"$ref": "#/$defs/none"},
        False,
    ],
    ids=["pattern", "range", "reference", "never"],
)
def test_a_schema_that_the_engine_cannot_take_is_not_enforced(
    gateway: Running, gpt: openai.OpenAI, odd: Any, stream: bool
) -> None:
    parameters = {"type": "object", "properties": {"x": odd}, "required": ["x"]}
    asked: Any = {"model": "base", "messages": SAID, "max_tokens": 40, "tool_choice": "required"}
    strict: Any = [{"type": "function", "function": {"name": "pick", "parameters": parameters, "strict": True}}]
    with pytest.raises(openai.BadRequestError, match="grammar"):
        gpt.chat.completions.create(**asked, tools=strict, stream=stream)
    tools: Any = [{"type": "function", "function": {"name": "pick", "parameters": parameters}}]
    reply: Any = gpt.chat.completions.create(**asked, tools=tools, stream=stream)
    if stream:
        assert list(reply)
    (row,) = gateway.interactions
    assert (row.quarantine, len(row.token_ids) > 0) == (None, True)


def check_call(gateway: Running, shown: str) -> None:
    (row,) = gateway.interactions
    call = row.reply["tool_calls"][0]["function"]
    assert call["name"] == "pick"
    assert json.loads(shown) == json.loads(call["arguments"])
    assert json.loads(shown) == {"x": "a"}
    assert (row.quarantine, len(row.token_ids)) == (None, len(row.logprobs))
