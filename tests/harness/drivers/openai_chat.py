"""Drives the `openai` Python client against the gateway. The first argument says what to do; the last line printed is
JSON."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from openai import OpenAI

TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look at a place.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    },
}
SYSTEM = {"role": "system", "content": "You look at places and say what you saw."}
client = OpenAI(base_url=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"], max_retries=5)


def say(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def whole(messages: list[dict[str, Any]], **more: Any) -> tuple[dict[str, Any], str]:
    """The reply's message and the response's id."""
    answer = client.chat.completions.create(model="agent", messages=messages, **more)
    return answer.choices[0].message.model_dump(exclude_none=True), answer.id


def streamed(messages: list[dict[str, Any]], **more: Any) -> tuple[dict[str, Any], str]:
    """The same through the client's own accumulation of a stream."""
    with client.chat.completions.stream(
        model="agent", messages=messages, stream_options={"include_usage": True}, **more
    ) as stream:
        final = stream.get_final_completion()
    assert final.usage is not None
    message = final.choices[0].message.model_dump(exclude_none=True, exclude={"parsed"})
    for call in message.get("tool_calls") or ():
        call["function"].pop("parsed_arguments", None)
        call.pop("index", None)
    return message, final.id


def converse(opening: str, ask: Any, *later: str, tools: bool = True) -> dict[str, Any]:
    """An agent's loop: every tool is called, then the next thing said, until nothing is left to say."""
    messages, ids, rounds, waiting = [SYSTEM, say(opening)], [], [], list(later)
    while True:
        message, response_id = ask(messages, **({"tools": [TOOL]} if tools else {}))
        ids.append(response_id)
        messages.append(message)
        calls = message.get("tool_calls") or []
        rounds.append(len(calls))
        for call in calls:
            at = json.loads(call["function"]["arguments"])["at"]
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"saw {at}"})
        if not calls:
            if not waiting:
                return {"text": message["content"], "rounds": rounds, "ids": ids}
            messages.append(say(waiting.pop(0)))


def choices() -> Any:
    """Two replies to one question; the second is gone on from."""
    messages = [SYSTEM, say("scene:choices please")]
    answer = client.chat.completions.create(model="agent", messages=messages, n=2)
    texts = [choice.message.content for choice in answer.choices]
    message, _ = whole([*messages, {"role": "assistant", "content": texts[1]}, say("go on with that")])
    return {"texts": texts, "text": message["content"]}


def schema() -> Any:
    shape = {
        "type": "json_schema",
        "json_schema": {
            "name": "seen",
            "schema": {"type": "object", "properties": {"seen": {"type": "string"}}, "required": ["seen"]},
        },
    }
    message, _ = whole([say("scene:schema please")], response_format=shape)
    return json.loads(message["content"])


def slow() -> Any:
    """The client gives up on the first try in mid-answer and asks again."""
    hasty = client.with_options(timeout=2.0)
    messages = [SYSTEM, say("scene:slow please")]
    found = []
    for text in ("go on", ""):
        stream = hasty.chat.completions.create(model="agent", messages=messages, stream=True)
        try:
            pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
        except Exception as error:  # a stream that stalls is the caller's to repeat: the client only repeats requests
            found.append(type(error).__name__)
            stream = hasty.chat.completions.create(model="agent", messages=messages, stream=True)
            pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
        found.append("".join(pieces))
        messages += [{"role": "assistant", "content": found[-1]}, say(text)]
    return found


def late() -> Any:
    """The engine thinks longer than the client waits: the client itself sends the request again."""
    hasty = client.with_options(timeout=2.0)
    messages = [SYSTEM, say("scene:late please")]
    first = hasty.chat.completions.create(model="agent", messages=messages).choices[0].message.content
    message, _ = whole([*messages, {"role": "assistant", "content": first}, say("go on")])
    return [first, message["content"]]


def again() -> Any:
    """Asked twice for the same, and then the last question put differently: each time the earlier reply is dropped."""
    messages = [SYSTEM, say("scene:again please")]
    first, _ = whole(messages)
    second, _ = whole(messages)
    messages.append(second)
    third, _ = whole([*messages, say("what is this")])
    edited, _ = whole([*messages, say("what is that")])
    return [message["content"] for message in (first, second, third, edited)]


def collide() -> Any:
    """Four conversations of one key that begin alike and get the same first answer."""
    with ThreadPoolExecutor(4) as pool:
        done = pool.map(
            lambda k: converse("scene:collide please", whole, f"I am number {k}", "bye", tools=False), range(4)
        )
        return {f"collide.{k}": one["ids"] for k, one in enumerate(done)}


def many() -> Any:
    """Twenty conversations at once with one system prompt."""
    with ThreadPoolExecutor(8) as pool:
        done = pool.map(lambda k: converse(f"scene:walk.m{k} please", streamed if k % 2 else whole, "bye"), range(20))
        return [one["text"] for one in done]


def responses(run: str, is_streamed: bool) -> Any:
    tool = {"type": "function", "name": "look", "strict": False, "parameters": TOOL["function"]["parameters"]}
    items: list[Any] = [say(f"scene:walk.{run} please")]
    rounds = []
    while True:
        asked: dict[str, Any] = {"model": "agent", "input": items, "tools": [tool], "store": False}
        if is_streamed:
            with client.responses.stream(**asked) as stream:
                answer = stream.get_final_response()
        else:
            answer = client.responses.create(**asked)
        calls = [item for item in answer.output if item.type == "function_call"]
        rounds.append(len(calls))
        if not calls:
            return {"text": answer.output_text, "rounds": rounds}
        items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output]
        for call in calls:
            output = f"saw {json.loads(call.arguments)['at']}"
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})


MODES = {
    "responses": lambda: responses("r", False),
    "responses-streamed": lambda: responses("rs", True),
    "whole": lambda: converse("scene:walk.w please", whole, "bye"),
    "streamed": lambda: converse("scene:walk.s please", streamed, "bye"),
    "retries": lambda: converse("scene:retries please", whole, "bye"),
    "retries-streamed": lambda: converse("scene:retries.s please", streamed, "bye"),
    "thinking": lambda: converse("scene:thinking please", streamed, "bye", tools=False),
    "choices": choices,
    "schema": schema,
    "slow": slow,
    "late": late,
    "again": again,
    "collide": collide,
    "many": many,
}

if __name__ == "__main__":
    print(json.dumps(MODES[sys.argv[1]]()))
