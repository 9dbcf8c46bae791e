"""RightReply: the row of a reply that is right as it stands, token by token.

A person wrote it next to what the agent replied in this step, or it is a good reply of an earlier step. It has no
behaviour log-probs, no ratio and no reward. A correction is only compared with the reply that it corrects.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from burnish.learner.data.good_replies import GoodReply
from burnish.learner.data.rows import Row
from burnish.learner.data.samples import RightKind, Sample


@dataclass(slots=True)
class RightReply(Row):
    """`of_sample` is the sample with the prompt that it answers, or `earlier` the good reply of an earlier step.
    `sample` stays None, because it is not what the policy of this step sampled.
    """

    of_sample: Sample | None = None
    earlier: GoodReply | None = None

    @property
    def is_whole(self) -> bool:
        """True unless it is a correction, which may only say what should have been different."""
        return self.of_sample is None or self.of_sample.right_kind is RightKind.DEMONSTRATION

    @property
    def interaction_id(self) -> str:
        turn = self.of_sample or self.earlier
        assert turn is not None
        return turn.interaction_id


def right_replies(samples: Iterable[Sample]) -> list[RightReply]:
    """One row for each sample that has a right reply, in their order."""
    return [
        RightReply(sample.prompt_ids, sample.demonstration_ids, of_sample=sample)
        for sample in samples
        if sample.demonstration_ids is not None
    ]


def again(good: Iterable[GoodReply]) -> list[RightReply]:
    """One row for each good reply of earlier steps, in their order."""
    return [RightReply(each.prompt_ids, each.completion_ids, earlier=each) for each in good]
