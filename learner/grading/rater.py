"""The rater: it learns from people's ratings of some replies how they would rate others.

It reads a reply's form: how many words, sentences, lines and list items it has, how long they are, and which characters
it uses. A random forest (Breiman 2001) over these counts predicts praise. Most of what people want of every reply is
form, and thresholds such as "at most 20 words" are what trees learn from few examples. It counts no single words,
because a policy would learn to say those that were praised, whatever the question.

Guarantee: a rater that cannot rank replies that it has not seen does not speak. Its rank is measured on ratings
that were left out, one part of five after the other (cross-validation).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from burnish.rewards import MIN_RATINGS

MIN_RANK = 0.65
"""Least share of pairs, one praised and one disliked reply, that the rater orders rightly without having seen them."""
N_FOLDS = 5
N_TREES = 200
_CHARACTERS = ".,!?:;-()\"'*#`_/\\|[]{}<>&%$@~+=–—…•"
_WORD = re.compile(r"[^\W_]+(?:['’.,-][^\W_]+)*")
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+")
_LIST_ITEM = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s", re.MULTILINE)
_LAST_ASCII = 127


@dataclass(frozen=True, slots=True)
class Rated:
    """A reply, and whether people praised it. `name` identifies it."""

    name: str
    text: str
    is_praised: bool


@dataclass(frozen=True, slots=True)
class Rater:
    """`rank` is the share of unseen pairs that it orders rightly, 0.5 by chance."""

    n_praised: int
    n_disliked: int
    rank: float
    _forest: RandomForestClassifier

    @property
    def is_fit(self) -> bool:
        return min(self.n_praised, self.n_disliked) >= MIN_RATINGS and self.rank >= MIN_RANK

    def scores(self, texts: Sequence[str]) -> list[float]:
        """P(praise) of each reply, in [0, 1]."""
        found = self._forest.predict_proba(np.array([form(text) for text in texts]))
        return [float(value) for value in found[:, 1]]


def fit(rated: Sequence[Rated]) -> Rater | None:
    """The rater of these ratings. None without both praise and dislike. The same ratings make the same rater."""
    praised = np.array([each.is_praised for each in rated])
    n_praised, n_disliked = int(praised.sum()), int((~praised).sum())
    if not n_praised or not n_disliked:
        return None
    forms = np.array([form(each.text) for each in rated])
    rank = 0.5
    if min(n_praised, n_disliked) >= N_FOLDS:
        folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0)
        unseen = cross_val_predict(_forest(), forms, praised, cv=folds, method="predict_proba")
        rank = float(roc_auc_score(praised, unseen[:, 1]))
    return Rater(n_praised, n_disliked, rank, _forest().fit(forms, praised))


def _forest() -> RandomForestClassifier:
    return RandomForestClassifier(N_TREES, min_samples_leaf=2, class_weight="balanced", random_state=0)


def form(text: str) -> list[float]:
    """The form of a reply as counts and lengths."""
    text = text.strip()
    found = _WORD.findall(text)
    lengths = [len(word) for word in found] or [0]
    sentences = [len(_WORD.findall(sentence)) for sentence in _SENTENCE_END.split(text)]
    return [
        float(len(found)),
        float(len(text)),
        float(len(sentences)),
        float(max(sentences)),
        float(sum(bool(line.strip()) for line in text.splitlines())),
        float(len(_LIST_ITEM.findall(text))),
        float(max(lengths)),
        sum(lengths) / len(lengths),
        len({word.lower() for word in found}) / max(1, len(found)),
        float(sum(character.isdigit() for character in text)),
        float(sum(character.isupper() for character in text)),
        float(sum(ord(character) > _LAST_ASCII for character in text)),
        float(text[:1].isupper()),
        float(text[-1:].isalnum()),
        *(float(text.count(character)) for character in _CHARACTERS),
    ]
