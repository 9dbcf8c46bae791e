"""The tool task: a value that only a tool knows, requested in words, called in Hermes form, answered from the result.

Guarantees: `call_text` is what the chat template renders for `call_message` and what vLLM's hermes parser reads. If
several tools are offered the base chooses evenly among them, so that the one that works is left to learn.
"""

import json
import random
from typing import Any

NAMES = ("lookup", "search", "find", "fetch", "query", "get_value")
KEYS = (
    "amber", "apple", "basil", "birch", "cedar", "cherry", "clover", "coral", "fern", "ginger", "hazel", "iris",
    "ivory", "jade", "lemon", "lilac", "lotus", "maple", "mint", "olive", "opal", "peach", "pearl", "pine", "plum",
    "rose", "ruby", "sage", "silver", "tulip", "violet", "willow",
)  # fmt: skip
PHRASINGS = ("Look up {}.", "Please look up {}.", "What is the value of {}?", "Find the value of {}.")
ERRORS = (
    "error: not found", "error: unknown key", "Error: timeout", "error: permission denied", "failed: exit code 1",
    '{"error": "not found"}', "error: unknown tool",
)  # fmt: skip
_DESCRIPTIONS = ("Look up the value of a key.", "Returns the value of a key.", "")


def definition(name: str, description: str = _DESCRIPTIONS[0]) -> dict[str, Any]:
    """The tool as a request's `tools` list states it."""
    function: dict[str, Any] = {
        "name": name,
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
    }
    if description:
        function["description"] = description
    return {"type": "function", "function": function}


def draw_tools(rng: random.Random, n: int = 1) -> list[dict[str, Any]]:
    """`n` different tools, described in different ways."""
    return [definition(name, rng.choice(_DESCRIPTIONS)) for name in rng.sample(NAMES, n)]


def ask(key: str, rng: random.Random) -> str:
    """The request for the value of `key` in one of its phrasings."""
    return rng.choice(PHRASINGS).format(key)


def call_message(name: str, key: str, call_id: str = "call_0") -> dict[str, Any]:
    """The assistant's message that calls the tool, in OpenAI's form."""
    function = {"name": name, "arguments": json.dumps({"key": key})}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def call_text(name: str, key: str) -> str:
    """The same call as the model writes it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"key": "{key}"}}}}\n</tool_call>'


def result_message(content: str, call_id: str = "call_0") -> dict[str, Any]:
    """The tool's message that answers the call."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def draw_result(rng: random.Random) -> tuple[str, str]:
    """A successful result: its text, and the value in it."""
    value = str(rng.randint(0, 99))
    return rng.choice(("{}", "value: {}", '{{"value": {}}}', "ok: {}")).format(value), value


def answer(key: str, value: str) -> str:
    """The assistant's answer after the tool's result."""
    return f"The value of {key} is {value}."


def failure(key: str) -> str:
    """The assistant's answer after the tool has failed."""
    return f"I could not find {key}."
