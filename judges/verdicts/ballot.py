"""From answers to one verdict: parse the votes, count them, find the hint that most of them wrote. Pure functions.

A tie, a majority of abstentions, or a majority that is too small is an abstention, never 0. An answer that cannot be
parsed is no vote. If fewer than half of the votes parse, the ballot is void and the turn is asked about again.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from burnish.judges.verdicts.verdict import UnreadableVerdict, Vote, parse_vote

MAX_HINTS = 3
MIN_AGREEMENT = 0.6
"""Share of the votes that must agree. Below it the judge abstains."""
"""Hints of one ballot that the teacher can choose from."""


class VoidBallot(ValueError):
    """Too few votes could be parsed. The message quotes the first that could not."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one ballot. `votes` has a score per parsed vote, None for an abstention.

    `hint` is the one that most votes wrote. `others` are the next ones, whether they may be used or not
    (judges/verdicts/hint_rules.py). `n_bearing` votes carry a hint and the verdict.
    """

    score: int | None
    confidence: float
    hint: str | None
    votes: tuple[int | None, ...]
    n_failed: int
    reason: str | None = None
    n_bearing: int = 0
    others: tuple[str, ...] = ()


def count(answers: Sequence[str], n_asked: int, min_agreement: float = 0.0) -> Result:
    """The result of `n_asked` votes, of which `answers` came back. Raises VoidBallot.

    If less than `min_agreement` of the parsed votes agree, the judge abstains, with the share as confidence.
    """
    votes: list[Vote] = []
    unread: list[UnreadableVerdict] = []
    for answer in answers:
        try:
            votes.append(parse_vote(answer))
        except UnreadableVerdict as error:
            unread.append(error)
    if 2 * len(votes) < n_asked or not votes:
        raise VoidBallot(
            f"{len(votes)} of {n_asked} votes could be read; {unread[0] if unread else 'no answer came back'}"
        )
    score, n_for = _majority([vote.score for vote in votes])
    agreement = n_for / len(votes)
    reason = None
    if score is not None and agreement < min_agreement:
        score, reason = None, f"votes disagree: {agreement:.2f} of them agree, {min_agreement:g} are needed"
    hints = [vote.hint for vote in votes if vote.hint and vote.score == score]
    ranked = _ranked(hints)
    return Result(
        score=score,
        confidence=agreement,
        hint=ranked[0] if ranked else None,
        votes=tuple(vote.score for vote in votes),
        n_failed=n_asked - len(votes),
        reason=reason,
        n_bearing=len(hints),
        others=tuple(ranked[1:MAX_HINTS]),
    )


def _majority(scores: Sequence[int | None]) -> tuple[int | None, int]:
    ranked = Counter(scores).most_common(2)
    if len(ranked) == 2 and ranked[0][1] == ranked[1][1]:
        return None, ranked[0][1]
    return ranked[0]


def _ranked(hints: Sequence[str]) -> list[str]:
    """Each hint once: those that most votes wrote first, the shortest among equals."""
    tally = Counter(hints)
    return sorted(tally, key=lambda hint: (-tally[hint], len(hint), hint))
