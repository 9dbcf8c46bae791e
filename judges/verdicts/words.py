"""A user's own words as the hint, without a model: nobody knows better what the user wants.

The words pass the same checks as a judge's hint. The rating beside them, if any, gives the score. It is on record so
that the turn's story is whole; the reward comes from the rating itself.
"""

import hashlib
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from burnish.judges.injection import scan
from burnish.judges.verdicts.hint_rules import MAX_LENGTH, Grounds, words_status_of
from burnish.judges.verdicts.question import QuotedMessage
from burnish.records import Feedback, Judgement
from burnish.rewards import WORDS, value_of, words_of

REASON = "the user's own words"


def judgement(turn: str, said: Feedback, gold: Sequence[str] = ()) -> Judgement:
    """The record of a user's words on `turn`. `gold` are right replies that people gave to it."""
    words, rating = words_of(said), value_of(said)
    quoted = QuotedMessage("feedback", words)
    spans = scan.of_text(words) if len(words) <= MAX_LENGTH else ()  # longer words never become a hint
    findings = tuple(f"{span.code} in {quoted.author}: {words[span.start : span.end][: scan.QUOTE]}" for span in spans)
    score = None if rating is None else (rating > 0) - (rating < 0)
    status = words_status_of(words, rating, Grounds(is_users=True, gold=gold, findings=findings))
    return Judgement(turn, identity(), score, 1.0, words, (), 0, time.time(), REASON, status, findings)


@cache
def identity() -> str:
    """`words/hash` of the rules for a hint."""
    rules = Path(__file__).with_name("hint_rules.py").read_bytes() + Path(__file__).read_bytes()
    return f"{WORDS}{hashlib.sha256(rules).hexdigest()[:12]}"
