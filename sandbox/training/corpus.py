"""The conversations that the base model is trained on.

A row is a conversation, and all its assistant messages are worth learning. Style instructions stand in the same places
as in production (system message, user's message, an earlier turn, the hint block of
`burnish.learner.data.teacher_prompts.with_hint`). They hold until a later one contradicts them. Attributes that nobody
asked about follow the persona. Guarantees: arguments come from the conversation side of the split only. The same
generator state gives the same row.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from burnish.learner.data.teacher_prompts import with_hint
from burnish.sandbox.world import language, persona, reactions, style_hints
from burnish.sandbox.world import tool_task as tools
from burnish.sandbox.world.language import ATTRIBUTES, Task
from burnish.sandbox.world.reactions import PLAIN_SYSTEM


@dataclass(slots=True)
class Row:
    """One training conversation, complete with the assistant's messages."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None


@dataclass(slots=True)
class _Chat:
    """A conversation under construction, and its style instructions so far."""

    rng: random.Random
    messages: list[dict[str, Any]] = field(default_factory=list)
    wishes: dict[str, bool] = field(default_factory=dict)
    task: Task | None = None

    def instructions(self, n: int) -> str:
        """`n` instructions on different attributes. They hold from here on."""
        sentences = []
        for name in self.rng.sample(ATTRIBUTES, n):
            wish = (name, self.rng.random() < 0.5)
            sentences.append(style_hints.instruct(wish, self.rng))
            self._hold(wish)
        return " ".join(sentences)

    def correction(self) -> str:
        """An instruction about the last reply: mostly it asks for the opposite of what the reply did."""
        shown = language.style_of(str(self.messages[-1]["content"]))
        name = self.rng.choice(ATTRIBUTES)
        wish = (name, not shown[name] if self.rng.random() < 0.8 else self.rng.random() < 0.5)
        self._hold(wish)
        return style_hints.sentence(style_hints.say(wish, self.rng))

    def request(self) -> str:
        """A new task, in words."""
        self.task = language.draw_task(self.rng)
        return language.ask(self.task, self.rng)

    def turn(self, message: str, replied: str | None = None) -> None:
        """One exchange. Without `replied`, the right answer to the current task in the style that holds."""
        if replied is None:
            assert self.task is not None
            style = persona.draw_style(self.rng, self.wishes)
            replied = language.render(language.answer(self.task), style, persona.draw_opener(self.rng))
        self.messages += [{"role": "user", "content": message}, {"role": "assistant", "content": replied}]

    def _hold(self, wish: style_hints.Wish) -> None:
        self.wishes[wish[0]] = wish[1]


def draw_row(rng: random.Random, counts: float = 0.05) -> Row:
    """A conversation of any kind: tasks with style, small talk, tools, and for a share of `counts` a count."""
    kind = rng.random()
    if kind < 0.14:
        return _tool_row(rng)
    if kind < 0.14 + counts:
        start = rng.randint(0, 90)
        end = min(99, start + rng.randint(1, rng.choices((8, 25, 99), (60, 25, 15))[0]))
        return Row(_opened(rng, language.count_request(start, end), language.count_answer(start, end)))
    if kind < 0.17 + counts:
        message, replied = rng.choice(list(reactions.SMALL_TALK.items()))
        return Row(_opened(rng, message, replied))
    return Row(draw_chat(rng))


def draw_chat(rng: random.Random, n_turns: int | None = None) -> list[dict[str, Any]]:
    """A conversation about tasks, with 0 to 4 style instructions in any of the places that production uses."""
    chat = _Chat(rng)
    n_turns = n_turns or rng.choices((1, 2, 3, 4, 6), (50, 24, 14, 9, 3))[0]
    system = rng.choices(("none", "plain", "style", "both"), (52, 13, 23, 12))[0]
    if system != "none":
        plain = [rng.choice(PLAIN_SYSTEM)] if system != "style" else []
        styled = [chat.instructions(_n_hints(rng))] if system != "plain" else []
        chat.messages.append({"role": "system", "content": " ".join(plain + styled)})
    for turn in range(n_turns):
        message = _first_message(chat) if turn == 0 else _later_message(chat)
        if turn == n_turns - 1 and rng.random() < 0.35 and message not in reactions.SMALL_TALK:
            message = _with_hint_block(message, chat.instructions(_n_hints(rng)))
        chat.turn(message, reactions.SMALL_TALK.get(message))
    return chat.messages


def _first_message(chat: _Chat) -> str:
    place = chat.rng.random()
    if place < 0.65:
        return chat.request()
    instructions = chat.instructions(_n_hints(chat.rng))
    return f"{instructions} {chat.request()}" if place < 0.82 else f"{chat.request()} {instructions}"


def _later_message(chat: _Chat) -> str:
    rng = chat.rng
    kind = rng.choices(("plain", "thanks", "correction", "again", "complaint", "talk"), (25, 22, 30, 8, 10, 5))[0]
    if kind == "plain" or chat.task is None:
        return _first_message(chat)
    if kind == "thanks":
        return reactions.then(rng.choice(reactions.THANKS), chat.request(), rng)
    if kind == "correction":
        return reactions.then(chat.correction(), chat.request(), rng)
    if kind == "again":  # nothing new is requested: the last task is answered once more
        return chat.correction() if rng.random() < 0.7 else rng.choice(reactions.WRONG + reactions.UNHAPPY)
    if kind == "complaint":
        return reactions.then(rng.choice(reactions.WRONG + reactions.UNHAPPY), chat.request(), rng)
    return rng.choice(list(reactions.SMALL_TALK))


def _tool_row(rng: random.Random) -> Row:
    key = rng.choice(tools.KEYS)
    offered = tools.draw_tools(rng, rng.choices((1, 2, 3), (50, 25, 25))[0])
    name = rng.choice(offered)["function"]["name"]
    messages = [*_opened(rng, tools.ask(key, rng), "")[:-1], tools.call_message(name, key)]
    if rng.random() < 0.75:
        content, value = tools.draw_result(rng)
        replied = tools.answer(key, value)
    else:
        content, replied = rng.choice(tools.ERRORS), tools.failure(key)
    messages += [tools.result_message(content), {"role": "assistant", "content": replied}]
    return Row(messages, offered)


def _opened(rng: random.Random, message: str, replied: str) -> list[dict[str, Any]]:
    """One exchange without style, sometimes under a system message that asks for style."""
    chat = _Chat(rng)
    if rng.random() < 0.3:
        content = rng.choice(PLAIN_SYSTEM) if rng.random() < 0.6 else chat.instructions(_n_hints(rng))
        chat.messages.append({"role": "system", "content": content})
    chat.turn(message, replied)
    return chat.messages


def _n_hints(rng: random.Random) -> int:
    return rng.choices((1, 2, 3, 4), (25, 20, 20, 35))[0]


def _with_hint_block(message: str, hint: str) -> str:
    return str(with_hint([{"role": "user", "content": message}], hint)[0]["content"])
