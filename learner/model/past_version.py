"""What an earlier version thinks: log-probs under the adapter in a directory, by the model that holds the current one."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from burnish.learner.data.rows import Tokens
from burnish.learner.model import adapter_file
from burnish.learner.model.policy import Policy, Weights


def logprobs_under(policy: Policy, directory: Path | None, rows: Sequence[Tokens]) -> list[Tensor]:
    """Log-probs of each row's completion ids [T] under the adapter in `directory`, or the base where it is None; on the
    CPU.

    Costs one forward pass without gradient and two copies of the adapter. The current adapter is afterwards what it
    was, bit for bit, whatever happens. Raises AdapterError where the directory's adapter cannot be read or is of
    another shape.
    """
    if directory is None:
        return policy.logprobs(rows, Weights.BASE)
    kept = policy.copy_adapter()
    try:
        policy.load_adapter(directory)
        return policy.logprobs(rows)
    finally:
        adapter_file.copy(kept, policy.parameters(), "the current adapter")
