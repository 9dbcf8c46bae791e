"""The question to the judge: each text with its author, as data that cannot end its own fence.

Each text is one JSON object on one line, with the author's role as key, between marks that carry a number drawn for
this case alone. JSON escapes line ends. Text that could be a chat template's own mark is escaped as well, so that no
tokenizer reads it as one.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from burnish.judges import prompts

LEFT_OUT = "[left out]"
"""Replaces removed words. The prompt explains it."""
# What begins a template's special token ("<|im_start|>", "</s>", "[INST]"), and characters that are invisible or
# reverse a line.
_MARKS = re.compile(
    r"<(?=[|｜/!A-Za-z])|\[(?=/?[A-Z_]+\])|[\x7f-\x9f\u200b\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)


@dataclass(frozen=True, slots=True)
class QuotedMessage:
    """One text, and its author: `user`, `assistant`, `tool`, `system`, or `feedback` for a comment with its rating."""

    author: str
    text: str

    @property
    def line(self) -> str:
        """A JSON object on one line: the author's role, and the text."""
        return _MARKS.sub(_escaped, json.dumps({self.author: self.text}, ensure_ascii=False))


@dataclass(frozen=True, slots=True)
class Question:
    """One reply to judge, the conversation before it, and the reaction."""

    conversation: tuple[QuotedMessage, ...]
    reply: QuotedMessage
    came_back: tuple[QuotedMessage, ...]

    def __iter__(self) -> Iterator[QuotedMessage]:
        """Every text, in the order of the conversation."""
        yield from (*self.conversation, self.reply, *self.came_back)

    def rewritten(self, change: Callable[[QuotedMessage], str]) -> "Question":
        """The same question with `change` applied to every text."""

        def all_of(texts: Iterable[QuotedMessage]) -> tuple[QuotedMessage, ...]:
            return tuple(replace(quoted, text=change(quoted)) for quoted in texts)

        return Question(all_of(self.conversation), all_of((self.reply,))[0], all_of(self.came_back))

    def messages(self, prompt: str, *, rubric: str = "", nonce: str | None = None) -> list[dict[str, str]]:
        """The chat messages of `prompt`. `nonce`: hexadecimal digits. By default a fresh number that does not occur in
        the texts.
        """
        parts = {
            "conversation": _lines(self.conversation),
            "reply": self.reply.line,
            "next_state": _lines(self.came_back),
        }
        while nonce is None or any(nonce in part for part in parts.values()):
            nonce = secrets.token_hex(4)
        return prompts.render(prompt, {**parts, "nonce": nonce}, rubric)


def _lines(texts: Iterable[QuotedMessage]) -> str:
    return "\n".join(quoted.line for quoted in texts)


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
