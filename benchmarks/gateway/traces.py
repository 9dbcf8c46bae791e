"""Scripted traces for the linker: conversations as harnesses send them, without a header that names the session.

The driver makes the requests, so it knows which reply each request continues. This truth is the measure. All sessions
share one key and run at the same time. If nothing in a request identifies its conversation (conversations with the same
opening, word for word), the correct answer is `ambiguous`. A link to a wrong conversation is never correct.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from burnish.testing import Scripted

Message = dict[str, Any]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
HELLO = [{"role": "user", "content": "Hello, can you help me with my project?"}]
SYSTEM = {"role": "system", "content": "You are a coding agent."}
HELPER = {"role": "system", "content": "You search files for another agent."}


@dataclass
class Truth:
    """One recorded reply: its parent reply, its conversation, and the kind of call."""

    parent: str | None
    session: int
    kind: str = "main"
    is_undecidable: bool = False
    is_colliding_opening: bool = False


@dataclass
class Traces:
    """Runs the conversations and keeps the truth by response id."""

    url: str
    seed: int = 0
    truth: dict[str, Truth] = field(default_factory=dict)
    n_colliding: int = 0

    def run(self, n_each: int) -> None:
        """Run `n_each` conversations of every shape, interleaved."""
        chance = random.Random(self.seed)
        with httpx.Client(base_url=self.url, timeout=30) as self._http:
            waiting = [
                shape(self, 1000 * kind + number) for kind, shape in enumerate(SHAPES) for number in range(n_each)
            ]
            waiting += [_colliding(self, 100_000 + number) for number in range(64)]
            while waiting:
                trace = chance.choice(waiting)
                if next(trace, None) is None:
                    waiting.remove(trace)

    def ask(
        self,
        session: int,
        messages: list[Message],
        parent: str | None,
        *,
        kind: str = "main",
        tools: bool = True,
        retry: int = 0,
        **truth: Any,
    ) -> tuple[str, Message]:
        """Send one request. Returns (response id, reply as the client would send it back)."""
        body: dict[str, Any] = {"model": "agent", "messages": messages} | ({"tools": [TOOL]} if tools else {})
        response = self._http.post(
            "/v1/chat/completions", json=body, headers={"x-stainless-retry-count": str(retry)} if retry else {}
        )
        response.raise_for_status()
        tree = response.json()
        message = tree["choices"][0]["message"]
        reply = {key: message[key] for key in ("role", "content", "tool_calls") if message.get(key)}
        self.truth[tree["id"]] = Truth(parent, session, kind, **truth)
        return tree["id"], reply

    def abandon(self, session: int, messages: list[Message], parent: str | None) -> None:
        """A streamed request that the client leaves after a few tokens."""
        body = {"model": "agent", "messages": messages, "tools": [TOOL], "stream": True}
        with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            for n, line in enumerate(response.iter_lines()):
                if n > 6 and line:
                    self.truth[json.loads(line.removeprefix("data: "))["id"]] = Truth(parent, session, "retried")
                    return


def reply_to(body: dict[str, Any], choice: int) -> Scripted:
    """The engine of these traces.

    It calls tools if the last user message asks for it, answers every greeting alike, and otherwise echoes.
    """
    last = str(body["messages"][-1].get("content"))
    if body["messages"][-1]["role"] == "user" and "look into" in last and body.get("tools"):
        return Scripted("", [("look", f'{{"at": "{n}"}}') for n in range(2)])
    if body["messages"] == HELLO:
        return Scripted("Of course. What is it about?")
    return Scripted(f"About '{last[-60:]}': noted, and done as you asked.")


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _results(reply: Message, text: str = "found") -> list[Message]:
    return [
        {"role": "tool", "tool_call_id": c["id"], "content": f"{text} {n}"} for n, c in enumerate(reply["tool_calls"])
    ]


Trace = Iterator[bool]


def _talk(traces: Traces, session: int) -> Trace:
    """A plain conversation."""
    messages, parent = [_user(f"Tell me about number {session}.")], None
    for turn in range(4):
        parent, reply = traces.ask(session, messages, parent, tools=False)
        messages = [*messages, reply, _user(f"And then, {turn}?")]
        yield True


def _agent(traces: Traces, session: int) -> Trace:
    """Parallel tool calls, two rounds."""
    messages, parent = [SYSTEM, _user(f"Please look into case {session}.")], None
    for turn in range(2):
        parent, reply = traces.ask(session, messages, parent)
        yield True
        messages = [*messages, reply, *_results(reply)]
        parent, reply = traces.ask(session, messages, parent)
        messages = [*messages, reply, _user(f"Now look into part {turn} of it.")]
        yield True


def _retried(traces: Traces, session: int) -> Trace:
    """A stream that breaks off and is requested again, marked as OpenAI's clients mark a retry."""
    messages = [SYSTEM, _user(f"Write a poem about {session}.")]
    traces.abandon(session, messages, None)
    yield True
    parent, reply = traces.ask(session, messages, None, retry=1)
    yield True
    traces.ask(session, [*messages, reply, _user("Shorter.")], parent)
    yield True


def _regenerated(traces: Traces, session: int) -> Trace:
    """A regenerated reply. The conversation continues from the second answer."""
    messages = [SYSTEM, _user(f"Name a colour for {session}.")]
    first, reply = traces.ask(session, messages, None)
    yield True
    messages = [*messages, reply, _user("Another?")]
    traces.ask(session, messages, first)
    yield True
    second, reply = traces.ask(session, messages, first)
    yield True
    # both answers have the same text
    traces.ask(session, [*messages, reply, _user("Thanks.")], second, is_undecidable=True)
    yield True


def _edited(traces: Traces, session: int) -> Trace:
    """The user goes back and sends another message."""
    messages = [SYSTEM, _user(f"Plan a trip to {session}.")]
    first, reply = traces.ask(session, messages, None)
    yield True
    traces.ask(session, [*messages, reply, _user("By train.")], first)
    yield True
    edited = [*messages, reply, _user("By boat.")]
    second, reply = traces.ask(session, edited, first)
    yield True
    traces.ask(session, [*edited, reply, _user("For two.")], second)
    yield True


def _trimmed(traces: Traces, session: int) -> Trace:
    """A harness removes old tool results, so that no common prefix is left."""
    messages = [SYSTEM, _user(f"Please look into ticket {session}.")]
    first, reply = traces.ask(session, messages, None)
    yield True
    results = _results(reply, "a very long listing")
    messages = [*messages, reply, *results]
    second, reply = traces.ask(session, messages, first)
    yield True
    cleared = [message | {"content": "[cleared]"} if message["role"] == "tool" else message for message in messages]
    messages = [*cleared, reply, _user("Please look into the rest.")]
    third, reply = traces.ask(session, messages, second)
    yield True
    traces.ask(session, [*messages, reply, *_results(reply)], third)
    yield True


def _compacted(traces: Traces, session: int) -> Trace:
    """Compaction: a side call asks for a summary. The conversation begins again from it, with its last tool call."""
    messages = [SYSTEM, _user(f"Please look into outage {session}.")]
    first, reply = traces.ask(session, messages, None)
    yield True
    asked = [*messages, reply, *_results(reply), _user("Summarise this conversation for a successor.")]
    traces.ask(session, asked, first, kind="side", tools=False)
    yield True
    messages = [SYSTEM, _user(f"Summary so far: outage {session} was looked into."), reply, *_results(reply)]
    second, reply = traces.ask(session, messages, first)
    yield True
    traces.ask(session, [*messages, reply, _user("Write the report.")], second)
    yield True


def _titled(traces: Traces, session: int) -> Trace:
    """A side call asks for a title and quotes the conversation's opening."""
    opening = f"Help me rename the module number {session} in my repository."
    first, reply = traces.ask(session, [SYSTEM, _user(opening)], None)
    yield True
    title = [{"role": "system", "content": "You write titles."}, _user(f"A title of at most six words for: {opening}")]
    traces.ask(-session, title, None, kind="side", tools=False)
    yield True
    traces.ask(session, [SYSTEM, _user(opening), reply, _user("Go on.")], first)
    yield True


def _delegated(traces: Traces, session: int) -> Trace:
    """A sub-agent works between two turns of the main agent."""
    messages = [SYSTEM, _user(f"Please look into migration {session}.")]
    first, reply = traces.ask(session, messages, None)
    yield True
    own = [HELPER, _user(f"Please look into every file of migration {session}.")]
    inner, inner_reply = traces.ask(-session, own, None)
    yield True
    traces.ask(-session, [*own, inner_reply, *_results(inner_reply)], inner)
    yield True
    traces.ask(session, [*messages, reply, *_results(reply)], first)
    yield True


def _colliding(traces: Traces, session: int) -> Trace:
    """Conversations with the same greeting and reply.

    Nothing identifies the second turn's conversation. Later words differ.
    """
    traces.n_colliding += 1
    first, reply = traces.ask(session, HELLO, None, tools=False, is_colliding_opening=True)
    yield True
    messages = [*HELLO, reply, _user(f"About my garden, plot {session}.")]
    second, reply = traces.ask(session, messages, first, tools=False, is_undecidable=True)
    yield True
    traces.ask(session, [*messages, reply, _user("And the roses?")], second, tools=False)
    yield True


SHAPES: tuple[Callable[[Traces, int], Trace], ...] = (
    _talk,
    _agent,
    _retried,
    _regenerated,
    _edited,
    _trimmed,
    _compacted,
    _titled,
    _delegated,
)
