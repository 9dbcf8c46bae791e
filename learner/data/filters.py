"""Filters: the rows of a batch that are not trained on, each with its reason's code. The step continues without
them."""

from collections.abc import Sequence

from burnish.learner.data.samples import Sample, SkipReason, defect


def admit(
    samples: Sequence[Sample], n_vocab: int, *, keep_duplicates: bool = False
) -> tuple[list[Sample], dict[str, SkipReason]]:
    """The samples that may be trained on, in their order, and the reasons for the others by interaction id.

    Arrays are checked again whoever made the sample, because one row that is not finite would cost the whole step. If
    the same reply to the same prompt comes twice, the first counts: a repetition is no more evidence.
    """
    kept: list[Sample] = []
    dropped: dict[str, SkipReason] = {}
    seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    for sample in samples:
        reason = defect(sample.prompt_ids, sample.completion_ids, sample.behaviour_logprobs, n_vocab)
        reply = (tuple(sample.prompt_ids), tuple(sample.completion_ids))
        if reason is None and reply in seen and not keep_duplicates:
            reason = SkipReason.DUPLICATED
        if reason is None:
            seen.add(reply)
            kept.append(sample)
        else:
            dropped[sample.interaction_id] = reason
    return kept, dropped
