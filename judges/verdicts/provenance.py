"""The authors of a hint's words. A hint changes weights for good, so only a user's own words may become one.

Content words are compared. If a hint shares words with a tool, a page or an assistant and none with the user, it was
not the user's wish. Words that nobody used are the judge's own phrasing, and count for neither.
"""

import re

from burnish.judges.injection.fold import plain
from burnish.judges.verdicts.question import Question

OWN = frozenset({"user", "feedback"})
NOT_OWN = "not the user's words"
_WORD = re.compile(r"[^\W_]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_SMALL = frozenset(
    re.findall(
        r"\w+",
        """
        a an the and or but not no never always to of in on at for with without by from as is are be was were
        been it its this that these those you your i my me we our they their he she his her do does did don dont
        should must shall will would can could may please use using used when where what which who how if then
        than so all any each every only just also more most less very into out up down about after before answer
        answers reply replies response responses user users give make keep say
        """,
    )
)
_STEM = 5
"""Letters after which two forms of a word count as the same: recommend, recommended, recommending."""


def is_users_own(hint: str, question: Question) -> bool:
    """False if the user wrote nothing after the reply, or if more of the hint's words come only from others than from
    the user.
    """
    if not any(quoted.author in OWN and quoted.text.strip() for quoted in question.came_back):
        return False
    own, foreign = shares(hint, question)
    return foreign <= own


def shares(hint: str, question: Question) -> tuple[float, float]:
    """The share of the hint's content words that the user used, and the share that only others used. Both 0 if it has
    none.
    """
    wanted = _content(hint)
    if not wanted:
        return 0.0, 0.0
    own = set().union(*(_content(quoted.text) for quoted in question if quoted.author in OWN))
    foreign = set().union(*(_content(quoted.text) for quoted in question if quoted.author not in OWN)) - own
    return len(wanted & own) / len(wanted), len(wanted & foreign) / len(wanted)


def _content(text: str) -> frozenset[str]:
    words = (word for word in _WORD.findall(plain(text)) if word not in _SMALL)
    return frozenset(part for word in words for part in (word if _CJK.search(word) else (word[:_STEM],)))
