"""Prompts that a trained version must still answer, each with a program's check.

Two disjoint sets. *Gate* prompts are asked before a version goes live. *Anchors* may be trained on. Both ask for style
in every direction (also against the house style), tool calls, answers from tool results, short counts and small talk.
Guarantees: `check` is a regular expression that the whole reply must match. It accepts every style that the prompt
leaves open. The shipped JSONL files are what this code writes.
"""

import json
import random
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from burnish.learner.data.teacher_prompts import with_hint
from burnish.sandbox.world import language, reactions, style_hints, tool_task
from burnish.sandbox.world.language import ATTRIBUTES, OPENERS, Style
from burnish.sandbox.world.reactions import PLAIN_SYSTEM

Prompt = dict[str, Any]
"""Fields: `messages`, `tools` (a list or None), `check`."""

N_GATE, N_ANCHORS = 96, 240
GATE_FILE, ANCHORS_FILE = "retention.jsonl", "anchors.jsonl"


@cache
def gate_prompts() -> tuple[Prompt, ...]:
    """The gate's prompts. Their tasks have held-out arguments."""
    return _draw(random.Random("gate"), N_GATE, held_out=True, taken=set())


@cache
def anchor_prompts() -> tuple[Prompt, ...]:
    """The anchors, none of which is a gate prompt. Their tasks have conversation arguments."""
    return _draw(random.Random("anchors"), N_ANCHORS, held_out=False, taken={_key(each) for each in gate_prompts()})


def other_prompts(name: str, n: int) -> tuple[Prompt, ...]:
    """`n` prompts with held-out arguments that are neither the gate's nor anchors. The same name gives the same
    prompts.

    Raises ValueError if there are not so many: small talk has 44 in all.
    """
    taken = {_key(each) for each in (*gate_prompts(), *anchor_prompts())}
    return _draw(random.Random(name), n, held_out=True, taken=taken)


def passes(prompt: Prompt, reply: str) -> bool:
    """True if the whole reply matches the prompt's check."""
    return re.fullmatch(prompt["check"], reply) is not None


def write(folder: Path) -> None:
    """Write both sets to `folder` as JSON lines."""
    for name, prompts in ((GATE_FILE, gate_prompts()), (ANCHORS_FILE, anchor_prompts())):
        (folder / name).write_text(to_jsonl(prompts), encoding="utf-8")


def to_jsonl(prompts: Iterable[Prompt]) -> str:
    """One JSON object per line."""
    return "".join(json.dumps(prompt, ensure_ascii=False) + "\n" for prompt in prompts)


def reply_pattern(answer: str, style: Style) -> str:
    """A pattern of the replies that give `answer` in `style`, with any value of the attributes that the style leaves
    out.
    """
    options = {"opener": f"(?:{'|'.join(OPENERS)})[ \n]", "list": "- ", "smile": r" :\)"}
    piece = {name: _optional(text, style.get(name)) for name, text in options.items()}
    plain = _literal(answer)
    bold = rf"\*\*{plain}\*\*"
    marked = {True: bold, False: plain, None: f"(?:{bold}|{plain})"}[style.get("bold")]
    return f"{piece['opener']}{piece['list']}{marked}{piece['smile']}"


def _draw(rng: random.Random, n: int, *, held_out: bool, taken: set[str]) -> tuple[Prompt, ...]:
    """`n` different prompts: six of ten about style, one each of tool call, tool answer, count and small talk."""
    kinds: tuple[Callable[[random.Random, bool], Prompt], ...] = (
        _styled, _tool_call, _styled, _styled, _tool_answer, _styled, _count, _styled, _styled, _small_talk,
    )  # fmt: skip
    found: list[Prompt] = []
    n_tries = 0
    while len(found) < n:
        prompt = kinds[len(found) % len(kinds)](rng, held_out)
        n_tries += 1
        if _key(prompt) not in taken:
            taken.add(_key(prompt))
            found.append(prompt)
        elif n_tries > 1000 * n:
            raise ValueError(f"expected {n} different prompts, found {len(found)}: one kind has no more")
    return tuple(found)


def _styled(rng: random.Random, held_out: bool) -> Prompt:
    task = language.draw_task(rng, held_out=held_out)
    # An anchor that leaves an attribute open would replay the persona's habit in it, against what the users teach.
    n_asked = rng.choice((1, 1, 2, 4)) if held_out else len(ATTRIBUTES)
    style = {name: rng.random() < 0.5 for name in rng.sample(ATTRIBUTES, n_asked)}
    asked = [{"role": "user", "content": language.ask(task, rng)}]
    place = rng.choice(("system", "user", "hint"))
    if place == "system":
        asked = [{"role": "system", "content": style_hints.canonical(style)}, *asked]
    elif place == "user":
        asked[0]["content"] += " " + style_hints.canonical(style)
    else:
        asked = with_hint(asked, style_hints.canonical(style))
    return {"messages": asked, "tools": None, "check": reply_pattern(language.answer(task), style)}


def _tool_call(rng: random.Random, held_out: bool) -> Prompt:
    key, name = rng.choice(tool_task.KEYS), rng.choice(tool_task.NAMES)
    as_written, as_read = tool_task.call_text(name, key), f"{name}({json.dumps({'key': key})})"
    return {
        "messages": [{"role": "user", "content": tool_task.ask(key, rng)}],
        "tools": [tool_task.definition(name)],
        "check": f"(?:{_literal(as_written)}|{_literal(as_read)})",  # as the model writes it, or as a server parsed it
    }


def _tool_answer(rng: random.Random, held_out: bool) -> Prompt:
    key, name = rng.choice(tool_task.KEYS), rng.choice(tool_task.NAMES)
    content, value = tool_task.draw_result(rng)
    asked = {"role": "user", "content": tool_task.ask(key, rng)}
    return {
        "messages": [asked, tool_task.call_message(name, key), tool_task.result_message(content)],
        "tools": [tool_task.definition(name)],
        "check": _literal(tool_task.answer(key, value)),
    }


def _count(rng: random.Random, held_out: bool) -> Prompt:
    start = rng.randint(0, 80)
    end = start + rng.randint(3, 12)
    messages = [{"role": "user", "content": language.count_request(start, end)}]
    return {"messages": messages, "tools": None, "check": _literal(language.count_answer(start, end))}


def _small_talk(rng: random.Random, held_out: bool) -> Prompt:
    said, replied = rng.choice(list(reactions.SMALL_TALK.items()))
    system = rng.choice(("", *PLAIN_SYSTEM))
    messages = [{"role": "system", "content": system}] if system else []
    return {"messages": [*messages, {"role": "user", "content": said}], "tools": None, "check": _literal(replied)}


def _literal(text: str) -> str:
    # re.escape also escapes spaces and line ends, which makes the files hard to read
    return re.escape(text).replace("\\ ", " ").replace("\\\n", "\n")


def _optional(pattern: str, wanted: bool | None) -> str:
    return {True: pattern, False: "", None: f"(?:{pattern})?"}[wanted]


def _key(prompt: Prompt) -> str:
    return json.dumps([prompt["messages"], prompt["tools"]], sort_keys=True)
