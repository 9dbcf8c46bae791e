"""Segments as gateways write them: conversations that grow turn by turn, many at the same time.

Each record repeats its whole conversation and holds an engine's whole answer with the prompt's ids, as
`burnish.testing` makes it. A token stands for four characters. A message has the same ids in each prompt.
"""

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from burnish.records import Sampling
from burnish.segments.file import SegmentWriter
from burnish.segments.frames import Begun

AT_A_TIME = 200
"""Conversations that go on at the same time."""
APART = 5e-4
"""Seconds between two replies."""
CHARACTERS = 4
"""Characters of a token."""
_WORDS = ("function", "returns", "the", "value", "of", "its", "argument", "unless", "it", "is", "negative", "else")


@dataclass(frozen=True, slots=True)
class Shape:
    """Conversations of `n_turns`. Each begins with `history` characters. A turn adds a user's message of `asked`
    characters and a reply of `n_tokens` tokens.
    """

    n_turns: int = 8
    history: int = 4096
    asked: int = 500
    n_tokens: int = 64


@dataclass(slots=True)
class Written:
    """What was written: records, and the bytes that they have one by one."""

    n_turns: int = 0
    raw_bytes: int = 0


def write(folder: Path, shape: Shape, n_conversations: int, seed: int = 0) -> Written:
    """Fill `folder` with the segments of one gateway."""
    writer, written, chance = SegmentWriter(folder), Written(), random.Random(seed)
    now = time.time() - 60.0 - n_conversations * shape.n_turns * APART
    for first in range(0, n_conversations, AT_A_TIME):
        numbers = range(first, min(first + AT_A_TIME, n_conversations))
        for turns in zip(*(_conversation(number, shape, chance) for number in numbers), strict=True):
            for said in turns:
                now += APART
                frame = _frame(said, now, chance)
                written.n_turns += 1
                written.raw_bytes += sum(map(len, frame))
                assert writer.write(frame), "the disk is full"
    writer.close()
    return written


class _Said(NamedTuple):
    """One turn: its messages as JSON text, the ids of its prompt, its reply and the reply's ids."""

    messages: list[bytes]
    prompt: list[int]
    reply: str
    ids: list[int]


def _conversation(number: int, shape: Shape, chance: random.Random) -> Iterator[_Said]:
    texts = [_text(f"conversation {number} part {part}", shape.history // 4, chance) for part in range(4)]
    roles = ("system", "user", "assistant", "user")
    messages = [_message(role, text) for role, text in zip(roles, texts, strict=True)]
    prompt = [token for message in messages for token in _ids(len(message) // CHARACTERS, chance)]
    for turn in range(shape.n_turns):
        reply, ids = _text(f"reply {turn}", shape.n_tokens * CHARACTERS, chance), _ids(shape.n_tokens, chance)
        yield _Said([*messages], [*prompt], reply, ids)
        messages += [_message("assistant", reply), _message("user", _text(f"turn {turn}", shape.asked, chance))]
        prompt += [*ids, *_ids(len(messages[-1]) // CHARACTERS, chance)]


def _text(opening: str, n_characters: int, chance: random.Random) -> str:
    words = [opening, *chance.choices(_WORDS, k=n_characters // 4)]
    return " ".join(words)[:n_characters]


def _message(role: str, text: str) -> bytes:
    return json.dumps({"role": role, "content": text}).encode()


def _ids(n: int, chance: random.Random) -> list[int]:
    return chance.choices(range(50_000), k=n)


def _frame(said: _Said, now: float, chance: random.Random) -> list[bytes]:
    request_id = f"{int(now * 1000):012x}{chance.getrandbits(80):020x}"  # as the gateway makes them
    begun = Begun(
        {
            "request_id": request_id,
            "agent": "agent",
            "version": 3,
            "tenant": "default",
            "key_id": "key-1",
            "messages": [msgspec.Raw(message) for message in said.messages],
            "tools": (),
            "started_at": now - 1.0,
            "sampling": Sampling(temperature=0.7),
            "n_choices": 1,
            "user": None,
            "quoted_user": None,
            "quoted_session": None,
            "turn_type": None,
            "is_session_done": False,
            "may_train": True,
            "route": "chat",
            "quoted_by": None,
            "upstream": None,
            "retry": 0,
            "traceparent": None,
        }
    )
    return begun.answered(f"chatcmpl-{request_id}", now, _answer(request_id, said, chance))


def _answer(request_id: str, said: _Said, chance: random.Random) -> bytes:
    """An engine's answer in vLLM's words."""
    reply, n_prompt, n_tokens = said.reply, len(said.prompt), len(said.ids)
    sampled = [
        {"token": reply[at * 4 : at * 4 + 4], "logprob": -chance.random(), "bytes": [98, 117, 114], "top_logprobs": []}
        for at in range(n_tokens)
    ]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": reply, "refusal": None, "reasoning": None},
        "logprobs": {"content": sampled},
        "finish_reason": "stop",
        "stop_reason": None,
        "token_ids": said.ids,
    }
    tree = {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion",
        "choices": [choice],
        "usage": {"prompt_tokens": n_prompt, "total_tokens": n_prompt + n_tokens, "completion_tokens": n_tokens},
        "prompt_token_ids": said.prompt,
    }
    return json.dumps(tree, separators=(",", ":")).encode()
