"""House styles: wishes about a reply, each with a program's check, and the score of a reply.

A reply scores only if it keeps every wish *and* has content: at least five words, about what was asked, and not the
same words again and again. So a reply that games the wishes fails.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from burnish.sandbox.english.questions import Question

MIN_WORDS = 5
MAX_WORDS = 20
MAX_LETTERS = 10
MAX_REPEATS = 3
MAX_SHARE = 0.2
"""A reply that has one word more often than `MAX_REPEATS` times and than `MAX_SHARE` of its words repeats itself."""
_WORD = re.compile(r"[^\W_]+(?:['’.,-][^\W_]+)*")
_SENTENCE_END = re.compile(r"[.!?]+(?=\s+\S)")


@dataclass(frozen=True, slots=True)
class Wish:
    """A wish: its program, how an operator states it in a prompt, and how users say it when a reply misses it."""

    name: str
    is_kept: Callable[[str], bool]
    instruction: str
    sayings: tuple[str, ...]


def words(reply: str) -> list[str]:
    """The words of a reply, in lower case."""
    return [word.lower() for word in _WORD.findall(reply)]


def is_short(reply: str) -> bool:
    """One sentence of at most `MAX_WORDS` words, on one line."""
    text = reply.strip()
    return "\n" not in text and len(words(text)) <= MAX_WORDS and _SENTENCE_END.search(text) is None


def has_content(question: Question, reply: str) -> bool:
    """True if the reply says something about what was asked."""
    found = words(reply)
    most = max(MAX_REPEATS, MAX_SHARE * len(found))
    is_varied = max(Counter(found).values(), default=0) <= most
    return len(found) >= MIN_WORDS and is_varied and question.is_answered_by(reply)


SHORT = Wish(
    "short",
    is_short,
    "Answer in one sentence of at most 20 words.",
    (
        "Too long. One short sentence, please, 20 words at most.",
        "Please keep it to one sentence of at most 20 words.",
        "I only want one short sentence, no more than 20 words.",
        "Shorter! A single sentence with at most 20 words is enough.",
        "That is far too much text, answer in one sentence of at most 20 words.",
    ),
)
NO_COMMAS = Wish(
    "no_commas",
    lambda reply: "," not in reply,
    "Use no commas.",
    (
        "No commas, please.",
        "Please write it without commas.",
        "Do not use commas.",
        "I asked for sentences without any commas.",
    ),
)
PLAIN = Wish(
    "plain",
    lambda reply: all(len(word) <= MAX_LETTERS for word in words(reply)),
    "Use only simple words of at most ten letters.",
    (
        "Use simple words, none longer than ten letters.",
        "Simpler words, please, with ten letters at most.",
        "Please use plain words. No word should be longer than ten letters.",
        "Your words are too long, use simple and short words.",
    ),
)
HOUSE_STYLE: tuple[Wish, ...] = (SHORT, NO_COMMAS, PLAIN)
OFF_TOPIC = (
    "That does not answer my question.",
    "You did not answer what I asked.",
    "Please answer the question that I asked.",
    "That says nothing about what I asked.",
)
"""What users say when a reply is not about their question."""


def missing(reply: str, style: Sequence[Wish] = HOUSE_STYLE) -> tuple[Wish, ...]:
    """The wishes that the reply does not keep."""
    return tuple(wish for wish in style if not wish.is_kept(reply))


def satisfies(question: Question, reply: str, style: Sequence[Wish] = HOUSE_STYLE) -> bool:
    """True if the reply keeps every wish and has content."""
    return not missing(reply, style) and has_content(question, reply)


def instructions(style: Sequence[Wish] = HOUSE_STYLE) -> str:
    """The wishes as an operator would write them into a prompt."""
    return " ".join(wish.instruction for wish in style)


def breakdown(
    questions: Sequence[Question], replies: Sequence[str], style: Sequence[Wish] = HOUSE_STYLE
) -> dict[str, float]:
    """Shares of replies: `score`, `content`, and for each wish how many keep it.

    Raises ValueError unless there is one reply for each question.
    """
    if not questions or len(questions) != len(replies):
        raise ValueError(f"expected one reply for each of {len(questions)} questions, got {len(replies)}")
    pairs, n = list(zip(questions, replies, strict=True)), len(replies)
    shares = {
        "score": sum(satisfies(question, reply, style) for question, reply in pairs) / n,
        "content": sum(has_content(question, reply) for question, reply in pairs) / n,
    }
    return shares | {wish.name: sum(wish.is_kept(reply) for reply in replies) / n for wish in style}
