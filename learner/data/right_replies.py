"""RightReply: the row of a reply that somebody gave as right, beside the row of what the agent said.

It is no reply of any policy: it has no behaviour log-probs, and neither a ratio nor a reward. Its temperature is that
of the reply it stands beside, so that it is learned as the policy is asked.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from burnish.learner.data.rows import Row
from burnish.learner.data.samples import Sample


@dataclass(slots=True)
class RightReply(Row):
    """`of_sample` is the sample whose prompt it answers; `sample` stays None, as no policy sampled it."""

    of_sample: Sample | None = None

    @property
    def interaction_id(self) -> str:
        assert self.of_sample is not None
        return self.of_sample.interaction_id


def right_replies(samples: Iterable[Sample]) -> list[RightReply]:
    """One row for each sample that has a right reply, in their order."""
    return [
        RightReply(sample.prompt_ids, sample.demonstration_ids, sample.temperature, of_sample=sample)
        for sample in samples
        if sample.demonstration_ids is not None
    ]
