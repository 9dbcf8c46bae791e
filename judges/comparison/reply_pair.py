"""Two replies to one conversation: the prompt that asks which is better, and the parser of its answer.

Each pair is shown in both orders, so that a judge that prefers the first place has no effect (position bias: arXiv
2306.05685).
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from burnish.judges import prompts
from burnish.judges.verdicts.question import QuotedMessage
from burnish.judges.verdicts.verdict import UnreadableVerdict, as_text, question

PROMPT = "compare"
_ANSWER = re.compile(r"BETTER:[ \t]*\**(?P<which>A|B|SAME)\b(?![ \t]*(?:[,/|]|or\b))", re.IGNORECASE)
_POINTS = {"A": 1, "B": -1, "SAME": 0}


def messages(
    conversation: Sequence[Mapping[str, Any]], a: Mapping[str, Any], b: Mapping[str, Any], *, nonce: str | None = None
) -> list[dict[str, str]]:
    """The chat messages that ask for a comparison of the replies `a` and `b`. `nonce` as for
    `burnish.judges.verdicts.question.Question.messages`."""
    asked = question(conversation, as_text(a), as_text(b), "assistant")
    parts = {
        "conversation": "\n".join(quoted.line for quoted in asked.conversation),
        "a": asked.reply.line,
        "b": "\n".join(QuotedMessage("assistant", quoted.text).line for quoted in asked.came_back),
    }
    while nonce is None or any(nonce in part for part in parts.values()):
        nonce = secrets.token_hex(4)
    return prompts.render(PROMPT, {**parts, "nonce": nonce})


def parse(answer: str) -> int:
    """1 if A is better, −1 if B is, 0 if they are equal. Raises UnreadableVerdict, with the text, if it names none of
    these.
    """
    found = _ANSWER.search(answer)
    if found is None:
        raise UnreadableVerdict(f"expected a line 'BETTER: A, B or SAME', got {answer[:200]!r}")
    return _POINTS[found["which"].upper()]


def outcome(
    as_shown: Sequence[str], turned: Sequence[str], min_agreement: float
) -> tuple[int | None, list[int | None], str | None]:
    """(outcome, votes, reason) of the answers in both orders: 1 for the first reply, −1 for the second, 0 for neither.

    A vote that cannot be parsed is None. If fewer than half of either order's votes parse, the outcome is unknown
    (None, with the reason). A reply wins with `min_agreement` of all parsed votes, and only if neither order's own
    majority is for the other reply. Otherwise neither wins.
    """
    first, second = [_vote(answer, 1) for answer in as_shown], [_vote(answer, -1) for answer in turned]
    votes = [*first, *second]
    read = [[vote for vote in side if vote is not None] for side in (first, second)]
    if any(2 * len(known) < len(side) or not known for known, side in zip(read, (first, second), strict=True)):
        return None, votes, "too few answers could be read"
    every = [vote for side in read for vote in side]
    for winner in (1, -1):
        is_backed = every.count(winner) >= min_agreement * len(every)
        if is_backed and all(side.count(winner) >= side.count(-winner) for side in read):
            return winner, votes, None
    return 0, votes, None


def _vote(answer: str, sign: int) -> int | None:
    try:
        return sign * parse(answer)
    except UnreadableVerdict:
        return None
