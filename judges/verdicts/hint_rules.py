"""Hint rules: a hint may be used if every rule holds. The first that fails becomes the hint's status.

A hint is what most votes of a judge wrote, or the user's own comment, word for word. An accepted hint becomes a
permanent change of weights, so the rules prefer to lose a good one. Rules that need the teacher's own probabilities are
the learner's.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from burnish.rewards import ACCEPTED

MIN_VOTES = 3
MIN_LENGTH, MAX_LENGTH = 10, 400
"""Characters."""
MIN_WORDS_LENGTH = 5
"""Characters of a user's own words. "Too long" is a whole wish, while a judge's hint of that length is a stub."""
LEAK_WORDS = 5
"""A hint that shares this many words in a row with an answer to this task gives the answer away."""
FEW_VOTES = "few_votes"
LENGTH = "length"
CONTRADICTS_SCORE = "contradicts_score"
INJECTION = "injection"
NOT_USERS_WORDS = "not_users_words"
LEAKS_ANSWER = "leaks_answer"
NOT_GENERAL = "not_general"
NO_WISH = "no_wish"
_ONE_OFF = re.compile(
    r"https?://|\bwww\.|[\w.]@[\w.]+\.\w|(?:^|\s)[~.]?/\w+/|\b[A-Za-z]:\\|\b[0-9a-f]{8,}\b|\b\d{4,}\b|\b\d{1,2}[./-]\d{1,2}[./-]\d{2,4}\b"
)
_WORD = re.compile(r"\w+")
# Words that praise or blame. A comment of nothing else does not say how the reply should have been.
_OPINION = frozenset(
    re.findall(
        r"\w+",
        """
        a absolutely again all am amazing and answer are asked at awesome awful bad best better but cool correct
        exactly excellent false fine for good great happy hate he hello help helped helpful helps hm hmm i incorrect
        is it its job like lol love lovely made me mistake much my nice no nonsense nope not of ok okay perfect
        please poor really reply response right rubbish s she so sorry sucks t terrible thank thanks that thats the
        they this to totally try u unhappy unhelpful useless very was we well what wonderful work worked works wow
        wrong yay yeah yes you your
        """,
    )
)


@dataclass(frozen=True, slots=True)
class Grounds:
    """The sources of a hint.

    `is_users`: the reaction came from an authenticated user. `is_grounded`: its words are not those of a tool or a web
    page in the conversation. `gold`: texts that hold the right answer to this task. `findings`: possible prompt
    injection.
    """

    is_users: bool
    is_grounded: bool = True
    gold: Sequence[str] = ()
    findings: Sequence[str] = ()


USERS, NOBODYS = Grounds(is_users=True), Grounds(is_users=False)


def hint_status_of(hint: str, score: int | None, n_votes: int, n_bearing: int, grounds: Grounds) -> str:
    """`accepted`, or the code of the first rule that fails. Of `n_votes` requested, `n_bearing` carry a hint and the
    verdict.
    """
    if n_votes < MIN_VOTES or 2 * n_bearing <= n_votes:
        return FEW_VOTES
    if not MIN_LENGTH <= len(hint) <= MAX_LENGTH:
        return LENGTH
    if score is None or score > 0:
        return CONTRADICTS_SCORE
    return _content_status(hint, grounds)


def words_status_of(words: str, rating: float | None, grounds: Grounds) -> str:
    """The same for a user's own words, beside the user's rating of the reply (None without one)."""
    if not MIN_WORDS_LENGTH <= len(words) <= MAX_LENGTH:
        return LENGTH
    if rating is not None and rating > 0:
        return CONTRADICTS_SCORE
    if _OPINION.issuperset(_WORD.findall(words.casefold())):
        return NO_WISH
    return _content_status(words, grounds)


def _content_status(hint: str, grounds: Grounds) -> str:
    if grounds.findings:
        return INJECTION
    if not grounds.is_users or not grounds.is_grounded:
        return NOT_USERS_WORDS
    if any(_leaks(hint, text) for text in grounds.gold):
        return LEAKS_ANSWER
    return NOT_GENERAL if _ONE_OFF.search(hint) else ACCEPTED


def _leaks(hint: str, gold: str) -> bool:
    theirs = _runs(gold)
    return any(run in theirs for run in _runs(hint))


def _runs(text: str) -> set[tuple[str, ...]]:
    words = _WORD.findall(text.casefold())
    return {tuple(words[at : at + LEAK_WORDS]) for at in range(len(words) - LEAK_WORDS + 1)}
