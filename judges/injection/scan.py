"""The scan for prompt injection: findings in a text, each with the span to cut out.

Pure functions of the text. A finding alone decides nothing, because people talk about scores, hints and judges. It has
the turn judged twice, with these spans and without them (`burnish.judges.injection.counterfactual`).
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from burnish.judges.injection import disguise
from burnish.judges.injection.fold import Folded, fold, undisguised
from burnish.judges.injection.phrases import CORE, PATTERNS, STEMS
from burnish.judges.verdicts.question import LEFT_OUT, Question, QuotedMessage

HIDDEN = "hidden"
"""Invisible characters, more than any language needs."""
QUOTE = 80
"""Characters of a text that a stored finding quotes."""
_TO_THE_END = frozenset({"mark", "judge", HIDDEN})
"""The text after a mark that pretends to end the data, or after an address to the judge, is as suspect as the mark."""
_ENDS = re.compile(r"\n|[.!?;](?=[\s\"')\]]|$)|[。！？；]|\"(?=\s*[,}\]])")
_UNSEEN = re.compile(
    r"[\u202a-\u202e\u2066-\u2069]+|[\u200b\u200c\u200d\u2060\ufeff\u00ad]{3,}|[\U000e0020-\U000e007e]{6,}"
)
_PART = re.compile(r"[^\n.!?;。！？；\s](?:[^\n.!?;。！？；]|[.!?;](?!\s|$))*")
"""A sentence: the text between two sentence ends."""
_SEAM = 80
"""Characters on both sides of the gap between two texts of one author that are read as one text."""
_RATING = re.compile(r"rating: (?:good|bad|neutral)\n?(?:comment: )?")
MAX_DEPTH = 2


@dataclass(frozen=True, slots=True)
class Span:
    """`text[start:end]` is suspect. `code` says what it looks like."""

    code: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Scan:
    """The suspect spans of a question, by text, in order and without overlap. `findings` describes them in words, for
    the record.
    """

    spans: dict[QuotedMessage, tuple[Span, ...]]
    findings: tuple[str, ...]


def of_question(question: Question) -> Scan:
    """The scan of every text that the judge would read, and of the gaps between two texts of one author."""
    spans = {quoted: list(of_text(quoted.text, _n_own(quoted))) for quoted in question}
    by_author: dict[str, list[QuotedMessage]] = {}
    for quoted in question:
        by_author.setdefault(quoted.author, []).append(quoted)
    for texts in by_author.values():
        for before, after in pairwise(texts):
            tail, head = _across(before.text, after.text)
            if tail and head:
                spans[before].append(tail)
                spans[after].append(head)
    found = {quoted: _merged(each) for quoted, each in spans.items() if each}
    findings = (
        f"{span.code} in {quoted.author}: {quoted.text[span.start : span.end][:QUOTE]}"
        for quoted, each in found.items()
        for span in each
    )
    return Scan(found, tuple(dict.fromkeys(findings)))


def redacted(question: Question, scan: Scan) -> Question:
    """The question with a neutral mark in place of each suspect span."""
    return question.rewritten(lambda quoted: _cut(quoted.text, scan.spans.get(quoted, ())))


@lru_cache(4096)
def of_text(text: str, start: int = 0, depth: int = 0) -> tuple[Span, ...]:
    """The suspect spans of one text from character `start` on."""
    found = [Span(HIDDEN, *each.span()) for each in _UNSEEN.finditer(text, start)]
    folded = fold(text)
    for view in (folded, undisguised(folded)):
        if view is not None:
            found += _matches(text, view)
    if depth < MAX_DEPTH:
        found += [
            Span("encoded", *place) for *place, decoded in disguise.covers(text) if of_text(decoded, 0, depth + 1)
        ]
        found += [
            Span("disguised", a, _line_end(text, b))
            for a, b, letters in disguise.spaced(text)
            if CORE.search(letters.lower())
        ]
        found += [
            Span("turned", part.start(), part.end())
            for part in _PART.finditer(text)
            for reversed_text in disguise.turned(part[0].lower())
            if CORE.search(reversed_text) and _is_turned(reversed_text, depth)
        ]
    return _merged([span for span in found if span.end > start])


def _matches(text: str, view: Folded) -> Iterator[Span]:
    if not STEMS.search(view.text):
        return
    for code, pattern in PATTERNS:
        covered = 0
        for match in pattern.finditer(view.text):
            if match.start() == match.end():
                continue
            start, end = view.span(*match.span())
            # Widened again for each match inside it, a long sentence would cost the square of its length.
            if end > covered:
                span, covered = _widened(text, code, start, end)
                yield span


def _widened(text: str, code: str, start: int, end: int) -> tuple[Span, int]:
    """The match, widened: to its sentence, to what it announces with a colon, or to the rest of the text. With the
    place up to which a further match would be widened to the same end.
    """
    ends = _sentence_ends(text)
    before = bisect_right(ends, start)
    start = ends[before - 1] if before else 0
    while text[start : start + 1].isspace() and start < end:
        start += 1
    end = len(text) if code in _TO_THE_END else _line_end(text, end) if code == "role" else _sentence_end(text, end)
    covered = end
    if text[start:end].rstrip(" \t\n\"'*_").endswith((":", "：")) and end < len(text):
        end = _sentence_end(text, min(len(text), _next_text(text, end)))
    return Span(code, start, start + max(1, len(text[start:end].rstrip()))), covered


@lru_cache(64)
def _sentence_ends(text: str) -> Sequence[int]:
    return [match.end() for match in _ENDS.finditer(text)]


def _sentence_end(text: str, place: int) -> int:
    ends = _sentence_ends(text)
    at = bisect_right(ends, place - 1)
    return ends[at] if at < len(ends) else len(text)


def _line_end(text: str, place: int) -> int:
    found = text.find("\n", place)
    return found if found >= 0 else len(text)


def _next_text(text: str, place: int) -> int:
    """The first place after `place` that is not blank, plus one."""
    found = re.compile(r"\S").search(text, place)
    return found.end() if found else len(text)


def _is_turned(text: str, depth: int) -> bool:
    """True if a reversed text speaks to the judge. A single stem may be there by chance."""
    return depth == 0 and len(CORE.findall(text)) > 0 and any(of_text(text, 0, MAX_DEPTH))


def _may_speak(text: str) -> bool:
    """False if no pattern can match. This one check settles most texts."""
    folded = fold(text)
    plainer = undisguised(folded)
    return bool(STEMS.search(folded.text) or (plainer and STEMS.search(plainer.text)) or _UNSEEN.search(text))


def _across(before: str, after: str) -> tuple[Span | None, Span | None]:
    """The end of `before` and the beginning of `after`, if only both together speak to the judge."""
    tail, head = before[-_SEAM:], after[:_SEAM]
    for gap in (" ", ""):
        joined = tail + gap + head
        if not _may_speak(joined):
            continue
        for span in of_text(joined, 0, MAX_DEPTH):
            if span.start < len(tail) and span.end > len(tail) + len(gap):
                at = len(before) - len(tail)
                first = Span("split", at + span.start, len(before))
                return first, Span("split", 0, min(len(after), max(1, span.end - len(tail) - len(gap))))
    return None, None


def _merged(spans: Sequence[Span]) -> tuple[Span, ...]:
    merged: list[Span] = []
    for span in sorted(spans, key=lambda each: (each.start, -each.end)):
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = Span(last.code, last.start, max(last.end, span.end))
        else:
            merged.append(span)
    return tuple(merged)


def _cut(text: str, spans: Sequence[Span]) -> str:
    parts: list[str] = []
    at = 0
    for span in spans:
        kept = text[at : span.start]
        parts += [kept, LEFT_OUT if not kept.strip().endswith(LEFT_OUT) else ""]
        at = span.end
        if at < len(text) and not text[at].isspace():
            parts.append(" ")
    return "".join([*parts, text[at:]])


def _n_own(quoted: QuotedMessage) -> int:
    """How many characters at the beginning are ours: the rating before a user's comment."""
    found = _RATING.match(quoted.text) if quoted.author == "feedback" else None
    return found.end() if found else 0
