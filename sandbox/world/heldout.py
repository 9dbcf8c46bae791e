"""Held-out prompts: single requests with arguments that no conversation and no training row uses.

Guarantees: the prompts and their order never change. A score is a plain share of replies, so two scores compare.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from burnish.sandbox.world import language
from burnish.sandbox.world.language import ATTRIBUTES, HOUSE_STYLE, Style, Task

N_PROMPTS = 240


@dataclass(frozen=True, slots=True)
class HeldOutPrompt:
    """One request and the task in it."""

    task: Task
    text: str

    @property
    def messages(self) -> list[dict[str, str]]:
        """The request as a conversation."""
        return [{"role": "user", "content": self.text}]


@cache
def prompts() -> tuple[HeldOutPrompt, ...]:
    """All held-out prompts, all different."""
    rng = random.Random("held out")
    found: dict[Task, HeldOutPrompt] = {}
    while len(found) < N_PROMPTS:
        task = language.draw_task(rng, held_out=True)
        found.setdefault(task, HeldOutPrompt(task, language.ask(task, rng)))
    return tuple(found.values())


def score(replies: Sequence[str], style: Style = HOUSE_STYLE) -> float:
    """The share of replies, one per prompt in order, that are right and in `style`."""
    return breakdown(replies, style)["satisfied"]


def breakdown(replies: Sequence[str], style: Style = HOUSE_STYLE) -> dict[str, float]:
    """Shares of replies: `satisfied`, `right`, and for each attribute of `style` how many keep it.

    Raises ValueError unless there is one reply per prompt. Use `breakdown_of` for a part of the prompts.
    """
    return breakdown_of(prompts(), replies, style)


def breakdown_of(
    asked: Sequence[HeldOutPrompt], replies: Sequence[str], style: Style = HOUSE_STYLE
) -> dict[str, float]:
    """`breakdown` over any of the prompts, with one reply for each."""
    if not asked or len(replies) != len(asked):
        raise ValueError(f"expected one reply for each of {len(asked)} prompts, got {len(replies)}")
    pairs = list(zip(asked, replies, strict=True))
    shares = {
        "satisfied": _share(language.satisfies(reply, prompt.task, style) for prompt, reply in pairs),
        "right": _share(language.is_right(prompt.task, reply) for prompt, reply in pairs),
    }
    for name in ATTRIBUTES:
        if name in style:
            shares[name] = _share(language.style_of(reply)[name] == style[name] for reply in replies)
    return shares


def _share(outcomes: Iterable[bool]) -> float:
    counted = list(outcomes)
    return sum(counted) / len(counted)
