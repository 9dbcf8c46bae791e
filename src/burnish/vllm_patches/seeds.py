"""Patch for seeds on a CPU: a request with a `seed` and a prompt that is read in pieces no longer ends the engine.

After each piece but the last, vLLM takes back the draw of an unwanted token by setting the request's generator to an
offset. A generator on a CPU has no offset, so the worker fails and the engine ends for all clients. Prompts are read in
pieces if they are longer than a step's tokens or come beside many others. With the patch, nothing is drawn from the
generator of a request that is not to be sampled yet. So nothing has to be taken back, and the same seed gives the same
tokens however its prompt was read.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from vllm.v1.worker.gpu_model_runner import GPUModelRunner  # the CPU's runner inherits from it


def sampling(sample: Callable[..., Any]) -> Callable[..., Any]:
    """A model runner's `sample_tokens` in which requests that are not sampled in this step have no generator."""

    @wraps(sample)
    def sampled(self: Any, *given: Any, **named: Any) -> Any:
        batch = self.input_batch
        unread = {int(row) for row in np.nonzero(self.discard_request_mask.np[: batch.num_reqs])[0]}
        held = {row: batch.generators.pop(row) for row in unread & batch.generators.keys()}
        try:
            return sample(self, *given, **named)
        finally:
            batch.generators.update(held)

    return sampled


GPUModelRunner.sample_tokens = sampling(GPUModelRunner.sample_tokens)
