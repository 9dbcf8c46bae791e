"""Content: how likely the question is, given a reply.

The base is no judge, but it is a language model. A reply that is about the question makes the question likelier than
one that would fit any question (maximum mutual information, Li et al. 2016, arXiv 1510.03055). Words that the reply has
from the question are left out first. Else a reply that only repeats the question would be the best one.
"""

import re
from collections.abc import Sequence

import torch

from burnish.learner.data.rows import Text
from burnish.learner.model.policy import Policy, Weights

BEFORE, AFTER = '"{reply}" is a good answer to the question "', '{question}"'
STEM = 4
"""Letters that two words begin with if they are forms of one word."""
MAX_QUESTION_TOKENS = 128
"""Most tokens of a question that count, from its end."""
_WORD = re.compile(r"[^\W_]+")


def fits(replies: Sequence[str], question: str, policy: Policy) -> list[float]:
    """The base's log-prob of `question` after each reply, in nats. It only compares replies to one question. All
    replies fit an empty question equally well.
    """
    if not question:
        return [0.0] * len(replies)
    tokenizer = policy.tokenizer

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    asked = ids(AFTER.format(question=question))[-MAX_QUESTION_TOKENS:]
    texts = [Text(ids(BEFORE.format(reply=without_words_of(question, reply))), asked) for reply in replies]
    with torch.no_grad():
        return [float(logprobs.sum()) for logprobs in policy.logprobs(texts, Weights.BASE)]


def without_words_of(question: str, reply: str) -> str:
    """The reply without the question's words and other forms of them."""
    asked = {word.lower() for word in _WORD.findall(question)}
    stems = tuple(word[:STEM] for word in asked if len(word) >= STEM)

    def kept(found: re.Match[str]) -> str:
        word = found[0].lower()
        return "" if word in asked or word.startswith(stems) else found[0]

    return " ".join(_WORD.sub(kept, reply).split())
