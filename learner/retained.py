"""Which of the base's answers to the retention prompts a version would still give, word for word.

The base's greedy answers are known (made once, cached). A version gives the same answer greedily exactly where each of its tokens is the
version's likeliest behind those before it: one forward pass over all prompts tells, where asking an engine would decode them token by
token. The gate asks the engine about the others, and about a few of these to see that this is true (server/retention.py).

JSON: {"schema": 1, "prompts": sha256 of the prompts' file, "n": prompts read, "unchanged": [their indices]}.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from learner.anchors import end_ids, read_prompts
from learner.base import revision
from learner.policy import Policy, Weights
from learner.prompts import render
from learner.rows import Text

MAX_TOKENS = 192
_BATCH = 32


class Retained:
    """The base's greedy answers to the first `n` prompts of a file; None where an answer has no end within the limit."""

    def __init__(self, digest: str, answers: Sequence[Text | None]) -> None:
        self.digest = digest
        self.answers = answers

    @classmethod
    def load(cls, file: Path, n: int, policy: Policy, cache_dir: Path) -> "Retained":
        """Raises LearnerError where `file` is no file of prompts."""
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        identity = f"retained {revision(policy.base_dir)} {digest} {n} {MAX_TOKENS}"
        cache = cache_dir / f"retained-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
        if not cache.exists():
            found = _answers(read_prompts(file)[:n], policy)
            cache_dir.mkdir(parents=True, exist_ok=True)
            aside = cache.with_name(f".{cache.name}.{os.getpid()}")
            aside.write_text(json.dumps([[list(t.prompt_ids), list(t.completion_ids)] if t else None for t in found]))
            aside.replace(cache)
        pairs = json.loads(cache.read_text(encoding="utf-8"))
        return cls(digest, [Text(*pair) if pair else None for pair in pairs])

    def told(self, policy: Policy) -> dict[str, Any]:
        """What a version directory keeps of the policy's current weights."""
        known = [(i, answer) for i, answer in enumerate(self.answers) if answer is not None]
        likeliest = policy.top([answer for _, answer in known], 1)
        same = [
            i for (i, answer), ids in zip(known, likeliest, strict=True) if ids[:, 0].tolist() == list(answer.completion_ids)
        ]
        return {"schema": 1, "prompts": self.digest, "n": len(self.answers), "unchanged": same}


def _answers(prompts: Sequence[Any], policy: Policy) -> list[Text | None]:
    rendered = [render(policy.tokenizer, prompt["messages"], prompt.get("tools") or ()) for prompt in prompts]
    order = sorted(range(len(rendered)), key=lambda i: len(rendered[i]))
    found: dict[int, Text | None] = {}
    with torch.no_grad(), policy.using(Weights.BASE):
        for start in range(0, len(order), _BATCH):
            some = order[start : start + _BATCH]
            found |= dict(zip(some, _greedy([rendered[i] for i in some], policy), strict=True))
    return [found[i] for i in range(len(rendered))]


def _greedy(prompts: Sequence[Sequence[int]], policy: Policy) -> list[Text | None]:
    """Each prompt with its likeliest continuation, up to and with its end token; None where that does not come."""
    ends = end_ids(policy)
    width = max(len(ids) for ids in prompts)
    ids = torch.tensor([[ends[0]] * (width - len(row)) + list(row) for row in prompts], device=policy.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts], device=policy.device)
    made = policy.model.generate(
        input_ids=ids,
        attention_mask=mask,
        do_sample=False,
        max_new_tokens=MAX_TOKENS,
        eos_token_id=ends,
        pad_token_id=ends[0],
    )
    texts: list[Text | None] = []
    for prompt, row in zip(prompts, made[:, width:].tolist(), strict=True):
        end = next((i for i, token in enumerate(row) if token in ends), None)
        texts.append(Text(list(prompt), row[: end + 1]) if end is not None else None)
    return texts
