"""The base model answers prompts in batches: for anchors, and as the reference for a version's forgetting."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from burnish.errors import LearnerError
from burnish.learner.model.policy import Policy

BATCH = 32


def generate(prompts: Sequence[Sequence[int]], policy: Policy, max_tokens: int, *, is_sampled: bool) -> list[list[int]]:
    """Ids of one reply to each prompt (ids), under the weights in use, through its end token or `max_tokens` long.

    Sampled at temperature 1, or else greedy. Prompts of similar length share a batch. The replies are in the order of
    the prompts.
    """
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    replies: dict[int, list[int]] = {}
    with _one_thread():
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            replies |= dict(zip(some, _batch([prompts[i] for i in some], policy, max_tokens, is_sampled), strict=True))
    return [replies[i] for i in range(len(prompts))]


@contextmanager
def _one_thread() -> Iterator[None]:
    """One torch thread on a CPU. A token at a time makes small products. Beside a busy engine, several threads would
    spend their time waiting for each other at the end of each.
    """
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def _batch(prompts: Sequence[Sequence[int]], policy: Policy, max_tokens: int, is_sampled: bool) -> list[list[int]]:
    ends = end_ids(policy)
    width = max(len(ids) for ids in prompts)
    ids = torch.tensor([[ends[0]] * (width - len(row)) + list(row) for row in prompts], device=policy.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts], device=policy.device)
    way = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0} if is_sampled else {"do_sample": False}
    made = policy.model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=max_tokens, eos_token_id=ends, pad_token_id=ends[0], **way
    )
    replies = []
    for row in made[:, width:].tolist():
        end = next((i for i, token in enumerate(row) if token in ends), len(row) - 1)
        replies.append(row[: end + 1])
    return replies


def end_ids(policy: Policy) -> list[int]:
    """Ids that end a reply: the generation configuration's, else the tokenizer's. Raises LearnerError if there are
    none.
    """
    configured = policy.model.generation_config.eos_token_id
    found = configured if configured is not None else policy.tokenizer.eos_token_id
    if found is None:
        raise LearnerError(
            f"the base model in {policy.base_dir} has no end-of-sequence token; "
            "set eos_token_id in its generation_config.json"
        )
    return list(found) if isinstance(found, list) else [int(found)]
