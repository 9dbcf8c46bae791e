"""The time that rules of the judges take for a text that somebody else wrote grows with its length."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from burnish.judges import prefilter
from burnish.judges.injection import scan
from burnish.judges.injection.fold import fold, undisguised
from burnish.judges.verdicts import hint_rules, provenance, words
from burnish.judges.verdicts.question import Question, QuotedMessage
from burnish.judges.verdicts.verdict import UnreadableVerdict, parse_vote
from tests.cost import LENGTHS, superlinear
from tests.factories import assistant, feedback, user


def folded(text: str) -> None:
    undisguised(fold(text))


def scanned(text: str) -> None:
    scan.of_text.cache_clear()
    scan._sentence_ends.cache_clear()
    quoted = QuotedMessage("user", text)
    question = Question((), QuotedMessage("assistant", "ok"), (quoted,))
    scan.redacted(question, scan.of_question(question))


def prefiltered(text: str) -> None:
    prefilter.reason([user(text)], assistant(text))


def ruled(text: str) -> None:
    hint_rules._content_status(text, hint_rules.Grounds(is_users=True, gold=[text]))


def compared(text: str) -> None:
    quoted = QuotedMessage("user", text)
    provenance.is_users_own(text, Question((), quoted, (quoted,)))


def quoted(text: str) -> None:
    assert "\n" not in QuotedMessage("user", text).line


def voted(text: str) -> None:
    with suppress(UnreadableVerdict):
        parse_vote(text)


def corrected(text: str) -> None:
    words.judgement("t", feedback("t", -1.0, correction=text))


@pytest.mark.parametrize("most", LENGTHS)
@pytest.mark.parametrize("work", [folded, prefiltered, ruled, compared, quoted, voted, corrected])
def test_the_time_for_a_text_grows_with_its_length(work: Callable[[str], Any], most: int) -> None:
    assert superlinear(work, most) == []


def test_so_does_the_time_of_the_scan() -> None:
    assert superlinear(scanned, 16_384) == []


def test_words_that_are_too_long_for_a_hint_are_not_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(scan, "of_text", lambda text: read.append(text) or ())
    for length in (hint_rules.MAX_LENGTH, hint_rules.MAX_LENGTH + 1):
        words.judgement("t", feedback("t", -1.0, correction="x" * length))
    assert [len(text) for text in read] == [hint_rules.MAX_LENGTH]
