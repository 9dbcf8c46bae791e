"""Several replies to one conversation, graded side by side: the prompt that asks for grades, and the strict parser.

The judge sees neither the author nor the time of a reply. The live reply and its shadows are numbered lines, in an
order that is drawn anew for each vote, so that no reply gains by its place (position bias: arXiv 2306.05685). They are
graded on the task and on the hint from the user's reaction to the live reply (its accepted hint).
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from burnish.judges import prompts
from burnish.judges.verdicts.question import QuotedMessage
from burnish.judges.verdicts.verdict import as_text, question

PROMPT = "rubric"
WORST, BEST = 0, 10
_LINE = re.compile(r"REPLY (?P<number>[1-9]\d?): (?P<grade>10|\d)")


class UnreadableGrades(ValueError):
    """The judge's answer does not have the form that the prompt asks for. The message quotes it."""


@dataclass(frozen=True, slots=True)
class Grades:
    """The outcome of several votes. `scores` [G] are means in [0, 1] in the members' order, None with a `reason` if the
    judge abstained.

    `votes` has the grades (0 to 10) of each vote, in the members' order, None for one that could not be parsed.
    """

    scores: tuple[float, ...] | None
    votes: tuple[tuple[int, ...] | None, ...]
    reason: str | None = None


def shuffled(n: int, rng: Random) -> list[int]:
    """The members 0 … n−1 in the order for one vote."""
    return rng.sample(range(n), n)


def messages(
    conversation: Sequence[Mapping[str, Any]],
    wish: str,
    replies: Sequence[Mapping[str, Any]],
    *,
    nonce: str | None = None,
) -> list[dict[str, str]]:
    """The chat messages that ask for the grades of `replies`, in this order. `nonce` as for
    `burnish.judges.verdicts.question.Question.messages`."""
    asked = question(conversation, "", [], "assistant")
    shown = [question((), as_text(reply), [], "assistant").reply.text for reply in replies]
    parts = {
        "conversation": "\n".join(quoted.line for quoted in asked.conversation),
        "wish": QuotedMessage("wish", wish or "none").line,
        "replies": "\n".join(QuotedMessage(f"reply {number}", text).line for number, text in enumerate(shown, 1)),
    }
    while nonce is None or any(nonce in part for part in parts.values()):
        nonce = secrets.token_hex(4)
    return prompts.render(PROMPT, {**parts, "nonce": nonce})


def answer(grades: Sequence[int]) -> str:
    """The answer that gives `grades`, as the prompt asks for it."""
    return "\n".join(f"REPLY {number}: {grade}" for number, grade in enumerate(grades, 1))


def parse(text: str, n: int) -> list[int]:
    """The grades of `n` replies, in the order shown. Raises UnreadableGrades unless there is exactly one line for
    each."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    found = [_LINE.fullmatch(line) for line in lines]
    numbers = [int(match["number"]) for match in found if match is not None]
    if len(lines) != n or numbers != list(range(1, n + 1)):
        raise UnreadableGrades(f"expected {n} lines 'REPLY 1: 0' to 'REPLY {n}: 10', got {text[:200]!r}")
    return [int(match["grade"]) for match in found if match is not None]


def count(answers: Sequence[str], orders: Sequence[Sequence[int]], n_asked: int) -> Grades:
    """The grades of `answers`, each in its own order of the same members. Fewer than half of `n_asked` parsed: an
    abstention.
    """
    votes: list[tuple[int, ...] | None] = []
    why = "no answer came back"
    for text, order in zip(answers, orders, strict=True):
        try:
            shown = parse(text, len(order))
        except UnreadableGrades as error:
            why = str(error)
            votes.append(None)
            continue
        votes.append(tuple(grade for _, grade in sorted(zip(order, shown, strict=True))))
    read = [vote for vote in votes if vote is not None]
    if not read or 2 * len(read) < n_asked:
        return Grades(None, tuple(votes), f"{len(read)} of {n_asked} votes could be read; {why}")
    means = tuple(sum(grades) / (len(read) * BEST) for grades in zip(*read, strict=True))
    return Grades(means, tuple(votes))
