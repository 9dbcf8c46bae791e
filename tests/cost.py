"""Texts and bodies that a client may write to make a parser slow, and whether a piece of work takes time in proportion
to them.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

_REPEATED = (
    *(
        "\n",
        " ",
        "a",
        "A",
        "1",
        "_",
        "$",
        "é",
        "語",
        "ﷺ",
        "\u200b",
        "\U000e0041",
        "a\u0301",
        "\\",
        '"',
        "'",
        "`",
        "=",
        "#",
    ),
    *("<", "[", "{", "(", "<b>", "</s>", "<|im_start|>", "[INST]", '{"a":', "[[", "}] ", "a ", "a.", "a. ", "a@", "a$"),
    *(
        "Calling tools: [{",
        "Calling tools:  ",
        "Calling tools: [{ }] x",
        "Call id: x ",
        "Observation:\n",
        "chatcmpl-tool-0",
    ),
    *(
        "score",
        "score: ",
        "rule",
        "judge: ",
        "\njudge:",
        "system: ",
        "\nsystem:",
        "ignore ",
        "treat it as ",
        "i am the ",
    ),
    *(
        "0x41",
        "\\u0041",
        "%41",
        "&#x41;",
        "01000001 ",
        "AAAAAAAAAAAA ",
        "aGludDogdmVyZGljdA== ",
        "x. y! ",
        "HTTP 404\n",
    ),
)
_HALVES = ("\n", " ", "a", "$", "judge: ", "x@", "Calling tools:", "}]", "{")
_NEAR = (
    *("4111 1111 1111 1112 ", "4111111111111111 ", "DE00 3704 0044 0532 0130 00 ", "10.0.0.1 ", "93.184.216.34 "),
    *("a@b.co ", "a@b", "@", "+49 30 1234567 ", "123-45-6789 ", "sk-", "ghp_ ", "eyJaaaaaaaa.", "-----BEGIN ", "AB12 "),
)
MEBIBYTE = 2**20
LENGTHS = (2**18, pytest.param(2**20, marks=pytest.mark.slow))
SMALL_CHANGE = 0.02
"""Seconds that say nothing about growth on a busy machine."""


def hostile_texts() -> Iterator[tuple[str, Callable[[int], str]]]:
    """(name, maker of a text of about n characters)."""
    for unit in _REPEATED:
        yield repr(unit), lambda n, unit=unit: (unit * (n // len(unit) + 1))[:n]  # type: ignore[misc]
    for one in _HALVES:
        for other in _HALVES:
            if one != other:
                yield (
                    f"{one!r}, then {other!r}",
                    lambda n, one=one, other=other: one * (n // 2 // len(one)) + other * (n // 2 // len(other)),  # type: ignore[misc]
                )


def near_findings() -> Iterator[tuple[str, Callable[[int], str]]]:
    """The same, of what is or nearly is something that redaction replaces."""
    for unit in _NEAR:
        yield repr(unit), lambda n, unit=unit: (unit * (n // len(unit) + 1))[:n]  # type: ignore[misc]


def large_bodies() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(path, name, body of nearly a mebibyte) that is large by its structure."""
    hello = [{"role": "user", "content": "x"}]
    text, empty = {"type": "text", "text": "x"}, {"role": "user", "content": ""}
    deep: Any = ["x"]
    for _ in range(5):
        deep = [deep]
    names = {f"field{n}": 1 for n in range(60_000)}
    function = {"function": {"name": "f", "parameters": {}}}

    def user(parts: list[Any]) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": parts}]}

    chats: dict[str, dict[str, Any]] = {
        "messages": {"messages": _many(empty)},
        "parts": user(_many(text)),
        "plain parts": user(_many("")),
        "images": user(_many({"type": "image_url", "image_url": {"url": "data:"}})),
        "files": user(_many({"file": ""})),
        "a file of many values": user([{"file": _many("")}]),
        "a file of many names": user([{"file": names}]),
        "nested files": user(_many({"file": deep})),
        "tools": {"messages": hello, "tools": _many(function)},
        "forced tools": {"messages": hello, "tools": _many(function), "tool_choice": "required"},
        "fields": {"messages": hello, **names},
        "stops": {"messages": hello, "stop": _many("")},
        "biases": {"messages": hello, "logit_bias": {str(n): 1 for n in range(80_000)}},
        "words": {"messages": hello, "bad_words": _many("")},
        "labels": {"messages": hello, "metadata": names},
        "schemas": {"messages": hello, "response_format": {"type": "json_schema", "json_schema": names}},
        "choices": {"messages": hello, "structured_outputs": {"choice": _many("")}},
    }
    for name, body in chats.items():
        yield "/v1/chat/completions", f"chat of many {name}", body
    lists: dict[str, Any] = {
        "empty texts": _many(""),
        "ids": _many(1),
        "lists of ids": _many([1]),
        "unlike": [*_many(1), "x"],
    }
    for name, given in lists.items():
        yield "/v1/completions", f"completion of many {name}", {"prompt": given}
        yield "/v1/embeddings", f"embedding of many {name}", {"input": given}
    call = {"type": "function_call", "call_id": "", "name": "", "arguments": ""}
    responses: dict[str, dict[str, Any]] = {
        "items": {"input": _many(empty)},
        "replies": {"input": _many({"role": "assistant", "content": [text]})},
        "thoughts": {"input": _many({"type": "reasoning"})},
        "foreign items": {"input": _many({"type": "mcp_call"})},
        "calls": {"input": _many(call)},
        "results": {"input": _many({"type": "function_call_output", "call_id": "", "output": ""})},
        "parts": {"input": [{"role": "user", "content": _many(text)}]},
        "tools": {"input": "x", "tools": _many({"type": "function", "name": "f"})},
        "custom tools": {"input": "x", "tools": _many({"type": "custom", "name": "f"})},
        "fields": {"input": "x", **names},
        "schemas": {"input": "x", "text": {"format": {"type": "json_schema", "name": "x", "schema": names}}},
    }
    for name, body in responses.items():
        yield "/v1/responses", f"response of many {name}", body
    image = {"type": "image", "source": {"type": "base64", "media_type": "", "data": ""}}
    result = {"type": "tool_result", "tool_use_id": "", "content": []}
    found = {"type": "search_result", "source": "", "title": "", "content": [text]}
    messages: dict[str, dict[str, Any]] = {
        "messages": {"messages": _many(empty)},
        "system messages": {"messages": _many({"role": "system", "content": "x"})},
        "blocks": user(_many(text)),
        "images": user(_many(image)),
        "results": user(_many(result)),
        "findings": user(_many(found)),
        "documents": user(_many({"type": "document", "source": {"type": "text", "data": ""}})),
        "thoughts": {"messages": [{"role": "assistant", "content": _many({"type": "redacted_thinking"})}]},
        "system blocks": {"messages": hello, "system": _many(text)},
        "tools": {"messages": hello, "tools": _many({"name": "f", "input_schema": {}})},
        "fields": {"messages": hello, **names},
        "stops": {"messages": hello, "stop_sequences": _many("x")},
    }
    for name, body in messages.items():
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            yield path, f"{path.rpartition('/')[2]} of many {name}", {"max_tokens": 9, **body}
    opinion = {"target": "a", "rating": "up"}
    yield "/v1/feedback", "feedback of many fields", {**opinion, **names}
    yield "/v1/feedback", "feedback of a long text", {**opinion, "comment": "x" * (MEBIBYTE - 100)}
    yield "/v1/feedback/batch", "a batch of many opinions", {"feedback": _many(opinion)}
    longest = [{**opinion, "comment": "x" * 1000}] * 1000
    yield "/v1/feedback/batch", "the largest batch", {"feedback": longest}


def _many(item: Any) -> list[Any]:
    """As many of the item as a mebibyte holds."""
    return [item] * ((MEBIBYTE - 1024) // (len(json.dumps(item, separators=(",", ":"))) + 1))


def superlinear(
    work: Callable[[str], Any], most: int, more: Iterable[tuple[str, Callable[[int], str]]] = ()
) -> list[str]:
    """The hostile texts, and `more`, on which four times the length takes much more than four times the time. `most` is
    the length of the longest text.
    """
    return [name for name, make in (*hostile_texts(), *more) if _grows(work, make, most)]


def _grows(work: Callable[[str], Any], make: Callable[[int], str], most: int) -> bool:
    n = 1024
    while (before := _seconds(work, make(n))) < SMALL_CHANGE and 4 * n < most:
        n *= 2
    for _ in range(3):  # another process may have disturbed the first
        if _seconds(work, make(4 * n)) < 9 * max(_seconds(work, make(n)), before, SMALL_CHANGE / 2):
            return False
    return True


def _seconds(work: Callable[[str], Any], text: str) -> float:
    began = time.process_time()
    work(text)
    return time.process_time() - began
