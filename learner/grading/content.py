"""Content: how much of a reply is also in what the base says about the question.

The base is no judge, but its own replies are mostly about the question. So a reply that shares words with them is more
often about it too. Words of the prompt say nothing new, and words that most replies have say little (inverse document
frequency). This is how retrieval finds documents (TF-IDF), with the base's reply as the query.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable

_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> frozenset[str]:
    """The words of a text, in lower case."""
    return frozenset(word.lower() for word in _WORD.findall(text))


def rarity(texts: Iterable[Collection[str]]) -> Callable[[str], float]:
    """The inverse document frequency of a word in texts of words, in nats."""
    counts, n = Counter[str](), 0
    for text in texts:
        counts.update(text)
        n += 1
    return lambda word: math.log((1 + n) / (1 + counts[word]))


def shared(
    reply: frozenset[str], reference: frozenset[str], prompt: frozenset[str], weight: Callable[[str], float]
) -> float:
    """The summed weight of the reply's words that are also in the reference and not in the prompt."""
    return sum(weight(word) for word in (reply & reference) - prompt)
