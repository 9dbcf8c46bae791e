"""Drives the `anthropic` Python client. The first argument says what to do; the last line printed is JSON."""

import json
import os
import sys
from typing import Any

from anthropic import Anthropic

TOOL = {
    "name": "look",
    "description": "Look at a place.",
    "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
}
SYSTEM = [{"type": "text", "text": "You look at places.", "cache_control": {"type": "ephemeral"}}]
client = Anthropic(base_url=os.environ["GATEWAY_URL"], api_key=os.environ["GATEWAY_KEY"], max_retries=5)


def converse(opening: str, is_streamed: bool, **more: Any) -> dict[str, Any]:
    """Call tools until there is an answer, then say one thing more."""
    messages: list[Any] = [{"role": "user", "content": opening}]
    asked: dict[str, Any] = {"model": "agent", "max_tokens": 1000, "system": SYSTEM, "tools": [TOOL], **more}
    rounds, waiting = [], ["bye"]
    while True:
        if is_streamed:
            with client.messages.stream(messages=messages, **asked) as stream:
                reply = stream.get_final_message()
        else:
            reply = client.messages.create(messages=messages, **asked)
        assert reply.usage.output_tokens > 0
        messages.append(
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in reply.content]}
        )
        calls = [block for block in reply.content if block.type == "tool_use"]
        rounds.append(len(calls))
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": f"saw {call.input['at']}"} for call in calls
        ]
        if not calls:
            if not waiting:
                return {
                    "text": "".join(block.text for block in reply.content if block.type == "text"),
                    "rounds": rounds,
                }
            results = [{"type": "text", "text": waiting.pop()}]
        messages.append({"role": "user", "content": results})


def count() -> Any:
    messages = [{"role": "user", "content": "how long is this"}]
    return client.messages.count_tokens(model="agent", messages=messages).input_tokens


MODES = {
    "whole": lambda: converse("scene:walk.whole please", False),
    "streamed": lambda: converse("scene:walk.streamed please", True),
    "retries": lambda: converse("scene:retries please", True),
    "thinking": lambda: converse(
        "scene:thinking please", True, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2048
    ),
    "count": count,
}

if __name__ == "__main__":
    print(json.dumps(MODES[sys.argv[1]]()))
