"""Filters: the rows of a batch that are not trained on, each with its reason's code. The step continues without
them.

A repetition is no more evidence. The same reply to the same prompt counts once, whoever it was for. From one voice,
rows with one reward that are nearly the same count once too: conversations with the same words, whatever their case,
marks and blanks, and the same reply; or, of long ones, nine tenths of their runs of three.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Hashable, Sequence
from functools import cached_property

from burnish.learner.data.samples import Sample, SkipReason, defect
from burnish.records import Message

LIKENESS = 0.9
MIN_RUNS = 40
"""Words or tokens from which on two texts may differ a little and still be a repetition."""
_LOOKED_BACK = 64
"""Rows of one voice that a row is compared with, so that the work grows with the rows."""
_WORD = re.compile(r"[^\W_]+")


def admit(
    samples: Sequence[Sample], n_vocab: int, *, keep_duplicates: bool = False
) -> tuple[list[Sample], dict[str, SkipReason]]:
    """The samples that may be trained on, in their order, and the reasons for the others by interaction id.

    Arrays are checked again whoever made the sample, because one row that is not finite would cost the whole step. Of
    repetitions the first counts.
    """
    kept: list[Sample] = []
    dropped: dict[str, SkipReason] = {}
    seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    texts: dict[Hashable, list[_Text]] = defaultdict(list)
    for sample in samples:
        reason = defect(sample.prompt_ids, sample.completion_ids, sample.behaviour_logprobs, n_vocab)
        reply = (tuple(sample.prompt_ids), tuple(sample.completion_ids))
        text = _Text(sample)
        said = texts[sample.who, sample.reward]
        if reason is None and not keep_duplicates and (reply in seen or any(map(text.is_like, said[-_LOOKED_BACK:]))):
            reason = SkipReason.DUPLICATED
        if reason is None:
            seen.add(reply)
            said.append(text)
            kept.append(sample)
        else:
            dropped[sample.interaction_id] = reason
    return kept, dropped


class _Text:
    """The conversation in plain words, and the reply's tokens."""

    def __init__(self, sample: Sample) -> None:
        self._asked = _Runs(_plain(sample.messages) or tuple(sample.prompt_ids))
        self._replied = _Runs(tuple(sample.completion_ids))

    def is_like(self, other: "_Text") -> bool:
        return self._replied.is_like(other._replied) and self._asked.is_like(other._asked)


class _Runs:
    """A sequence, comparable by its runs of three."""

    def __init__(self, parts: tuple[Hashable, ...]) -> None:
        self._parts = parts

    @cached_property
    def _runs(self) -> frozenset[tuple[Hashable, ...]]:
        return frozenset(zip(self._parts, self._parts[1:], self._parts[2:], strict=False))

    def is_like(self, other: "_Runs") -> bool:
        if self._parts == other._parts:
            return True
        if min(len(self._parts), len(other._parts)) < MIN_RUNS:
            return False
        return len(self._runs & other._runs) >= LIKENESS * len(self._runs | other._runs)


def _plain(messages: Sequence[Message]) -> tuple[str, ...]:
    """The words of all messages, without case, marks and blanks."""
    found: list[str] = []
    for message in messages:
        content = message.get("content")
        parts = content if isinstance(content, list | tuple) else [{"text": content}]
        text = " ".join(str(part.get("text") or "") for part in parts)
        found += [str(message.get("role")), *_WORD.findall(unicodedata.normalize("NFKC", text).casefold())]
    return tuple(found)
