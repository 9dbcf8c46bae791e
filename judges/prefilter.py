"""The prefilter: rules that find replies without content before any model is asked.

Model judges praise an empty reply, a colon or "Thought process:" in up to a third of cases, and one policy trained on
such praise collapsed into those openers (2507.08794). A reply that matches one of these rules gets -1. Every other
reply goes to the judge.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from burnish.judges.injection.fold import plain

EMPTY = "empty"
PUNCTUATION = "punctuation only"
OPENER = "opener only"
ECHO = "repeats the request"
MIN_ECHO = 12
"""Letters and digits from which a repeated message counts as an echo. A short one does not: "hi" may well be answered
with "hi".
"""
_MOST = 20_000
"""Characters of a text that are brought into one spelling, so that a record costs little however long it is."""
_LETTER = re.compile(r"[^\W_]")
_ANNOUNCEMENTS = (
    *(
        "thought process",
        "thinking process",
        "thought",
        "thoughts",
        "thinking",
        "reasoning",
        "analysis",
        "explanation",
        "approach",
    ),
    *(
        "solution",
        "the solution",
        "solution process",
        "answer",
        "the answer",
        "the answer is",
        "final answer",
        "the final answer",
    ),
    *(
        "the final answer is",
        "result",
        "the result",
        "the result is",
        "conclusion",
        "output",
        "response",
        "reply",
        "summary",
    ),
    *("step", "step 1", "step one", "steps", "assistant", "overview", "introduction", "to begin", "to begin with"),
    *(
        "lets think",
        "lets think step by step",
        "lets solve this",
        "lets solve this step by step",
        "let us think step by step",
    ),
    *(
        "lets solve this problem step by step",
        "let us solve this problem step by step",
        "lets begin",
        "lets start",
        "lets go",
    ),
    *("lets break this down", "lets break it down", "lets work through this", "lets take a look", "lets see"),
    *(
        "to solve this problem",
        "to answer this question",
        "to solve this",
        "here is the solution",
        "heres the solution",
    ),
    *(
        "here is the answer",
        "heres the answer",
        "here is my answer",
        "here it is",
        "here you go",
        "here is what i found",
    ),
    *(
        "解",
        "解答",
        "答案",
        "答え",
        "かいせつ",
        "解説",
        "思考过程",
        "풀이",
        "정답",
        "решение",
        "ответ",
        "respuesta",
        "solución",
    ),
    *(
        "proceso de pensamiento",
        "réponse",
        "la réponse",
        "solutions",
        "lösung",
        "antwort",
        "gedankengang",
        "soluzione",
        "risposta",
    ),
    *("resposta", "solução", "çözüm", "cevap", "الحل", "الجواب", "समाधान", "उत्तर"),
)
_ASIDES = (
    *(
        "sure",
        "sure thing",
        "certainly",
        "of course",
        "absolutely",
        "okay",
        "ok",
        "alright",
        "great",
        "great question",
        "first",
    ),
    *(
        "good question",
        "thats a great question",
        "no problem",
        "happy to help",
        "id be happy to help",
        "i can help with that",
    ),
    *(
        "i will help you with that",
        "ill help you with that",
        "i understand",
        "understood",
        "got it",
        "well",
        "so",
        "now",
        "yes",
    ),
)
"""Words without content before an announcement. (Alone they may be a whole answer: "from now on, be brief" –
"Sure".)"""
_SEPARATORS = re.compile(r"[\W_]+")
_TAGS = re.compile(
    r"\\(?:boxed|text|begin|end)\b|</?(?:think|thinking|answer|solution|reasoning|final|output|response|s|br|p)\s*/?>",
    re.IGNORECASE,
)


def reason(conversation: Sequence[Mapping[str, Any]], reply: Mapping[str, Any]) -> str | None:
    """The rule that `reply` matches. None if it has content. A reply with tool calls has content.

    `conversation` is what the reply answers. Both are in chat form.
    """
    if reply.get("tool_calls"):
        return None
    text = _text_of(reply)
    if not text.strip():
        return EMPTY
    head, rest = text[:_MOST], text[_MOST:]
    words = _words(head)
    if not words:
        return None if _LETTER.search(rest) else PUNCTUATION
    if not rest and _is_opener(words):
        return OPENER
    joined = "".join(words)
    if len(joined) >= MIN_ECHO and any(_repeats(joined, rest, _text_of(message)) for message in conversation):
        return ECHO
    return None


@cache
def identity() -> str:
    """`prefilter/hash` of the rules: part of each verdict that they give."""
    return f"prefilter/{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]}"


def _repeats(reply: str, rest: str, text: str) -> bool:
    """True if the text is the reply: its beginning in one spelling, and the `rest` of a long one as it is."""
    head = text[:_MOST]
    return text[_MOST:] == rest and len(reply) <= len(head) <= 4 * len(reply) and reply == "".join(_words(head))


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        return " ".join(map(_part, content))
    return str(content)


def _part(part: Any) -> str:
    if not isinstance(part, Mapping):
        return str(part)
    return str(part.get("text") or "") if part.get("type") in (None, "text", "output_text") else "[part]"


def _words(text: str) -> list[str]:
    """Words in one spelling: compatible forms of characters made equal, marks of apostrophe, emphasis and markup left
    out.
    """
    bare = plain(_TAGS.sub(" ", text)).replace("'", "").replace("’", "")
    return [word for word in _SEPARATORS.split(bare) if word]


def _is_opener(words: Sequence[str]) -> bool:
    """True if the text only announces an answer, with or without asides."""
    at = 0
    announces = False
    while at < len(words):
        length = next(
            (n for n in range(min(_LONGEST, len(words) - at), 0, -1) if tuple(words[at : at + n]) in _KNOWN), 0
        )
        if not length:
            return False
        announces = announces or _KNOWN[tuple(words[at : at + length])]
        at += length
    return announces


_KNOWN = {tuple(_words(text)): text in _ANNOUNCEMENTS for text in (*_ASIDES, *_ANNOUNCEMENTS)}
_LONGEST = max(map(len, _KNOWN))
