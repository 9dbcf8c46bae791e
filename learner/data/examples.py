"""Examples: good replies that the teacher reads before the conversation.

A small model imitates better than it obeys: with four good replies before the question, SmolLM2-135M keeps wishes that
it keeps half as often when they are put into words (docs/decisions/0031-praised-replies-as-examples.md).

Guarantee: a reply is never taught by a teacher that has read the same turn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from burnish.learner.data.good_replies import GoodReply, balanced
from burnish.learner.data.samples import Sample
from burnish.learner.data.teacher_prompts import changed_prompt
from burnish.records import Message

MAX_TOKENS = 128
"""Longest example, in tokens."""


def select(good: Iterable[GoodReply], n: int) -> list[GoodReply]:
    """At most `n` of the replies, balanced among their users: short replies to a single question, without tools."""
    return balanced(filter(_is_usable, good), n)


def shown(samples: Sequence[Sample], examples: Sequence[GoodReply], tokenizer: Any) -> list[Sample]:
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


def _is_usable(good: GoodReply) -> bool:
    said = [message for message in good.messages if message.get("role") != "system"]
    is_single = len(said) == 1 and said[0].get("role") == "user" and isinstance(said[0].get("content"), str)
    return is_single and not good.tools and len(good.completion_ids) <= MAX_TOKENS


def _turns(good: GoodReply, tokenizer: Any) -> list[Mapping[str, Any]]:
    """The question and the reply as messages."""
    reply = tokenizer.decode(list(good.completion_ids), skip_special_tokens=True).strip()
    return [good.messages[-1], {"role": "assistant", "content": reply}]


def _before_the_conversation(messages: Sequence[Message], turns: Sequence[Message]) -> list[Message]:
    """`messages` with `turns` after the system messages at its beginning."""
    n = next((i for i, message in enumerate(messages) if message.get("role") != "system"), len(messages))
    return [*messages[:n], *turns, *messages[n:]]
