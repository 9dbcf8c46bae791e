"""Everyday questions with the word stems that tell whether a reply is about them.

Guarantees: held-out topics occur in no conversation. A stem that occurs in a question does not count for it, so that
repeating the question is no answer.
"""

import hashlib
import json
import re
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
        """True if the reply is about what was asked: a word of it begins with one of `about`.

        It need not be true. A small model knows little, and no user here checks facts.
        """
        words = re.findall(r"[^\W_]+(?:,\d+)*", reply.lower())
        return any(word.startswith(self.about) for word in words)

    @property
    def messages(self) -> list[dict[str, str]]:
        """The question as a conversation."""
        return [{"role": "user", "content": self.text}]


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


def _read(file: Path) -> tuple[Question, ...]:
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return tuple(Question(row["topic"], row["question"], tuple(row["about"]), row.get("right", "")) for row in rows)
