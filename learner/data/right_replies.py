"""RightReply: the row of a reply that a person gave as right, next to the row of what the agent replied.

No policy sampled it: it has no behaviour log-probs, no ratio and no reward. Its temperature is that of the agent's
reply, so that it is learned at the temperature at which the policy is asked.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from burnish.learner.data.rows import Row
from burnish.learner.data.samples import Sample


@dataclass(slots=True)
class RightReply(Row):
    """`of_sample` is the sample with the prompt that it answers. `sample` stays None, because no policy sampled it."""

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
