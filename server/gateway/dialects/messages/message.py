"""The engine's whole answer as a Message, and the parts that a stream shares with it."""

from typing import Any

from burnish.errors import EngineError, EngineUnavailable
from burnish.server.gateway.dialects.messages.tool_calls import block_of
from burnish.wire.chunks import Answer, Piece, Usage, Words

GIVEN_UP = frozenset({"abort", "error"})
Tree = dict[str, Any]


def message(message_id: str, model: str, content: list[Tree], usage: Tree) -> Tree:
    """A Message that has not stopped yet."""
    head = {"id": message_id, "type": "message", "role": "assistant", "model": model}
    return head | {"content": content, "stop_reason": None, "stop_sequence": None, "usage": usage}


def choice_of(answer: Answer) -> Words:
    """The one choice of a whole answer."""
    if not answer.choices:
        raise EngineError("the engine's answer holds no reply; is it a vLLM server?")
    return answer.choices[0]


def blocks_of(piece: Piece, *, shows_thinking: bool) -> list[Tree]:
    """The reply's content, in the order in which a model writes it."""
    content: list[Tree] = []
    if shows_thinking and (thought := reasoning_of(piece)):
        content.append({"type": "thinking", "thinking": thought, "signature": ""})
    if piece.content:
        content.append({"type": "text", "text": piece.content})
    return content + [block_of(call) for call in piece.tool_calls or ()]


def reasoning_of(piece: Piece) -> str | None:
    return piece.reasoning or piece.reasoning_content


def stop_of(choice: Words, *, has_calls: bool) -> Tree:
    """`stop_reason` and `stop_sequence`. Raises EngineUnavailable for a reply that the engine gave up.

    A forced tool ends with `stop` in a chat completion. For Anthropic's clients every reply that calls a tool is
    `tool_use`.
    """
    if choice.finish_reason in GIVEN_UP:
        raise EngineUnavailable("the engine gave this reply up; please try again")
    sequence = None
    if choice.finish_reason == "length":
        reason = "max_tokens"
    elif has_calls:
        reason = "tool_use"
    elif isinstance(choice.stop_reason, str):
        reason, sequence = "stop_sequence", choice.stop_reason
    else:
        reason = "end_turn"
    return {"stop_reason": reason, "stop_sequence": sequence}


def usage_of(usage: Usage) -> Tree:
    """Token counts. For Anthropic, `input_tokens` are those that no cache held."""
    details = usage.prompt_tokens_details
    n_cached = (details and details.cached_tokens) or 0
    return counts(usage.prompt_tokens - n_cached, usage.completion_tokens or 0, n_cached)


def counts(n_input: int, n_output: int, n_cached: int = 0) -> Tree:
    return {
        "input_tokens": n_input,
        "output_tokens": n_output,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": n_cached,
    }
