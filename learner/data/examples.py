"""Examples: praised replies that the teacher reads before the conversation.

A small model imitates better than it obeys: with four praised replies before the question, SmolLM2-135M keeps wishes
that it keeps half as often when they are put into words (docs/decisions/0031-praised-replies-as-examples.md).

Guarantees: a reply is never taught by a teacher that has read it. One praised reply of each user comes before a second
one of any, and the newest come first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from burnish.learner.data.samples import Sample
from burnish.learner.data.teacher_prompts import changed_prompt
from burnish.learner.safety.hint_validation import PRAISE, LikedReply, liked_reply
from burnish.records import Message

MAX_TOKENS = 128
"""Longest example, in tokens."""


def select(samples: Sequence[Sample], earlier: Sequence[LikedReply], n: int) -> list[LikedReply]:
    """At most `n` praised replies to a single question: of the step's `samples`, the last first, then of `earlier`."""
    own = [liked_reply(sample) for sample in reversed(samples) if (sample.reward or 0.0) >= PRAISE]
    known, places = set[str](), dict[str, tuple[int, int]]()
    counts: dict[Any, int] = {}
    usable = [each for each in (*own, *earlier) if _is_usable(each)]
    for place, each in enumerate(usable):
        if each.interaction_id not in known:
            known.add(each.interaction_id)
            places[each.interaction_id] = (counts.get(each.user, 0), place)
            counts[each.user] = counts.get(each.user, 0) + 1
    return [usable[place] for _, place in sorted(places.values())[:n]]


def shown(samples: Sequence[Sample], examples: Sequence[LikedReply], tokenizer: Any) -> list[Sample]:
    """The samples with the teacher's prompt that shows the examples. A sample that is an example stays as it is."""
    if not examples:
        return list(samples)
    names = {each.interaction_id for each in examples}
    turns = [message for each in reversed(examples) for message in _turns(each, tokenizer)]

    def of(sample: Sample) -> Sample:
        if sample.interaction_id in names:
            return sample
        changed = _before_the_conversation(sample.messages, turns)
        ids = changed_prompt(tokenizer, sample.messages, changed, sample.tools, sample.prompt_ids)
        return replace(sample, example_prompt_ids=ids)

    return [of(sample) for sample in samples]


def _is_usable(liked: LikedReply) -> bool:
    said = [message for message in liked.messages if message.get("role") != "system"]
    is_single = len(said) == 1 and said[0].get("role") == "user" and isinstance(said[0].get("content"), str)
    return is_single and not liked.tools and len(liked.completion_ids) <= MAX_TOKENS


def _turns(liked: LikedReply, tokenizer: Any) -> list[Mapping[str, Any]]:
    """The question and the reply as messages."""
    reply = tokenizer.decode(list(liked.completion_ids), skip_special_tokens=True).strip()
    return [liked.messages[-1], {"role": "assistant", "content": reply}]


def _before_the_conversation(messages: Sequence[Message], turns: Sequence[Message]) -> list[Message]:
    """`messages` with `turns` after the system messages at its beginning."""
    n = next((i for i, message in enumerate(messages) if message.get("role") != "system"), len(messages))
    return [*messages[:n], *turns, *messages[n:]]
