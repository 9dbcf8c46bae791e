"""Everyday questions with the word stems that tell whether a reply is about them.

Guarantees: held-out topics occur in no conversation. A stem that occurs in a question does not count for it, so that
repeating the question is no answer.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Question:
    """One question. `about` are stems of words that answer it. `right` is what a user would have replied, empty in the
    exam.
    """

    topic: str
    text: str
    about: tuple[str, ...]
    right: str = ""

    def is_answered_by(self, reply: str) -> bool:
        """True if the reply is about what was asked: one word that answers it, or two of the topic's other words.

        It need not be true. A small model knows little, and no user here checks facts.
        """
        if _found(self.about, reply):
            return True
        return len(_found(topics().get(self.topic, ()), reply) - _found(topics().get(self.topic, ()), self.text)) >= 2

    @property
    def messages(self) -> list[dict[str, str]]:
        """The question as a conversation."""
        return [{"role": "user", "content": self.text}]


@cache
def topics() -> dict[str, tuple[str, ...]]:
    """Stems of the words that belong to each topic."""
    found: dict[str, str] = json.loads((FOLDER / "topics.json").read_text(encoding="utf-8"))
    return {topic: tuple(stems.split()) for topic, stems in found.items()}


@cache
def training() -> tuple[Question, ...]:
    """The questions that users ask."""
    return _read(FOLDER / "train.jsonl")


@cache
def heldout() -> tuple[Question, ...]:
    """The exam's questions, on other topics."""
    return _read(FOLDER / "heldout.jsonl")


@cache
def world_hash() -> str:
    """Digest of the whole world: its questions and its code. Figures of different hashes do not compare."""
    files = sorted((*FOLDER.glob("*.json*"), *FOLDER.glob("*.py")))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:8]


def _found(stems: Iterable[str], text: str) -> set[str]:
    """The stems that a word of `text` begins with."""
    words = re.findall(r"[^\W_]+(?:,\d+)*", text.lower())
    return {stem for stem in stems if any(word.startswith(stem) for word in words)}


def _read(file: Path) -> tuple[Question, ...]:
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return tuple(Question(row["topic"], row["question"], tuple(row["about"]), row.get("right", "")) for row in rows)
