"""Log-probs of an earlier version, from the model that holds the current one."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from burnish.learner.data.rows import Tokens
from burnish.learner.model import adapter_file
from burnish.learner.model.policy import Policy, Weights


def logprobs_under(policy: Policy, directory: Path | None, rows: Sequence[Tokens]) -> list[Tensor]:
    """Log-probs of each row's completion ids [T] under the adapter in `directory`, or the base if it is None. On the
    CPU.

    Costs one forward pass without gradient and two copies of the adapter. Afterwards the current adapter is bit for bit
    what it was, whatever happens. Raises AdapterError if the directory's adapter cannot be read or has another shape.
    """
    if directory is None:
        return policy.logprobs(rows, Weights.BASE)
    kept = policy.copy_adapter()
    try:
        policy.load_adapter(directory)
        return policy.logprobs(rows)
    finally:
        adapter_file.copy(kept, policy.parameters(), "the current adapter")
