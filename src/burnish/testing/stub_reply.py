"""The stub engine's replies: a reply from a script, token by token under a request's limits.

A token is a byte of UTF-8, and EOS ends a reply. A log-prob follows from model and token. Only the ids of tool calls
are random.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

EOS = 256
Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scripted:
    """One reply. `tool_calls` are (name, arguments as JSON text). `logprobs` overrides the made-up ones; None leaves
    one out.

    `pause` is the time before the first token in seconds, `hang` a stop in the middle of the stream. `n_prompt` is the
    reported length of the prompt, if it should differ from the real one.
    """

    content: str = ""
    tool_calls: Sequence[tuple[str, str]] = ()
    finish_reason: str | None = None
    logprobs: Sequence[float | None] | None = None
    reasoning: str = ""
    pause: float = 0.0
    hang: float = 0.0
    n_prompt: int | None = None

    @property
    def text(self) -> str:
        """The sampled text: reasoning in think tags, tool calls in Hermes form."""
        return self.opening + self.content + "\n".join(_hermes(name, arguments) for name, arguments in self.tool_calls)

    @property
    def opening(self) -> str:
        """The sampled text before the content."""
        return f"<think>{self.reasoning}</think>" if self.reasoning else ""

    @property
    def token_ids(self) -> list[int]:
        return [*self.text.encode(), EOS]

    @property
    def ending(self) -> str:
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal instead of a reply. With `cut`, the connection breaks before the first byte."""

    status: int = 500
    kind: str = "InternalServerError"
    message: str = "scripted failure"
    param: str | None = None
    cut: bool = False
    pause: float = 0.0


FULL = Refusal(503, "ServiceUnavailable", "too many queued requests")
TOO_LONG = Refusal(
    400,
    "BadRequestError",
    "This model's maximum context length is 2048 tokens. However, your prompt contains 9000 input tokens, which "
    "exceeds this "
    "limit even without any output tokens. Please reduce the length of the input prompt.",
    param="input_tokens",
)


@dataclass(slots=True)
class Played:
    """A reply as the engine gives it: one element of `deltas` for each sampled token."""

    token_ids: list[int]
    logprobs: list[float | None]
    deltas: list[Tree]
    finish_reason: str
    stop_reason: str | None = None
    n_prompt: int | None = None
    message: Tree = field(default_factory=dict)


def play(reply: Scripted, body: Tree) -> Played:
    """`reply` under the request's `stop` strings and token limit, with one log-prob for each token."""
    ids, deltas = reply.token_ids, deltas_of(reply)
    ending, stop_reason = reply.ending, None
    stops = [body["stop"]] if isinstance(body.get("stop"), str) else body.get("stop") or []
    found = [(reply.content.index(stop), stop) for stop in stops if stop in reply.content]
    if found:
        at, stop_reason = min(found)
        start = len((reply.opening + reply.content[:at]).encode())
        end = start + len(stop_reason.encode())
        ids, deltas = ids[:end], deltas[:start] + [{}] * (end - start)
        ending = "stop"
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    if limit is not None and limit < len(ids):
        ids, deltas = ids[:limit], deltas[:limit]
        ending, stop_reason = "length", None
    values = reply.logprobs or [logprob_of(body["model"], token) for token in ids]
    return Played(ids, list(values[: len(ids)]), deltas, ending, stop_reason, reply.n_prompt, _message(deltas))


def deltas_of(reply: Scripted) -> list[Tree]:
    """What each token adds: text once its characters are complete, tool calls once they are whole, nothing for the
    end."""
    deltas: list[Tree] = [{} for _ in reply.token_ids]
    at = len(b"<think>") if reply.reasoning else 0
    for character in reply.reasoning:
        at += len(character.encode())
        deltas[at - 1] = {"reasoning": character}
    at = len(reply.opening.encode())
    for character in reply.content:
        at += len(character.encode())
        deltas[at - 1] = {"content": character}
    for index, (name, arguments) in enumerate(reply.tool_calls):
        call_id = f"chatcmpl-tool-{uuid.uuid4().hex[:16]}"
        start = at + 12  # inside this call's text
        deltas[start] = {
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "index": index, "function": {"name": name}}],
        }
        for offset, piece in enumerate((arguments[:2], arguments[2:]), 1):
            deltas[start + offset] = {
                "content": None,
                "tool_calls": [{"index": index, "function": {"arguments": piece}}],
            }
        at += len(_hermes(name, arguments).encode()) + 1
    return deltas


def logprob_of(model: str, token: int) -> float:
    """The stub's log-prob of `token` under `model`, different for every model."""
    return -0.25 - ((token * 31 + sum(model.encode()) * 7) % 97) / 97


def prompt_ids(body: Tree) -> list[int]:
    """The stub's prompt: the bytes of every role and content."""
    return list(
        "".join(f"{message['role']}\n{message.get('content') or ''}\n" for message in body["messages"]).encode()
    )


def word_of(token: int) -> str:
    """A token as text."""
    return "<eos>" if token == EOS else bytes([token]).decode("utf-8", "replace")


def _hermes(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def _message(deltas: Sequence[Tree]) -> Tree:
    """The deltas joined, without a tool call that was cut short."""
    calls: list[Tree] = []
    for piece in (piece for delta in deltas for piece in delta.get("tool_calls") or ()):
        if "id" in piece:
            calls.append({"id": piece["id"], "type": "function", "function": piece["function"] | {"arguments": []}})
        else:
            calls[piece["index"]]["function"]["arguments"].append(piece["function"]["arguments"])
    whole = [call for call in calls if len(call["function"]["arguments"]) == 2]
    for call in whole:
        call["function"] = call["function"] | {"arguments": "".join(call["function"]["arguments"])}
    return {
        "content": "".join(delta.get("content") or "" for delta in deltas),
        "reasoning": "".join(delta.get("reasoning") or "" for delta in deltas) or None,
        "tool_calls": whole,
    }
