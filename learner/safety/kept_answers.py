"""Kept answers: which of the base's answers to the forgetting prompts a version would still give, word for word.

The base's greedy answers are known (made once, cached). A version gives the same greedy answer exactly if each token is
the version's likeliest after those before it. One forward pass over all prompts decides that, while an engine would
have to decode token by token. The gate asks the engine about the other prompts, and about a few of these as a check
(server/rollout/forgetting_prompts.py).

JSON: {"schema": 1, "prompts": sha256 of the prompts' file, "n": prompts read, "unchanged": [their indices]}.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from burnish.files import keep_text
from burnish.learner.data.anchors import read_prompts
from burnish.learner.data.rows import Text
from burnish.learner.data.teacher_prompts import render
from burnish.learner.model.base_model import revision
from burnish.learner.model.generation import end_ids, generate
from burnish.learner.model.policy import Policy, Weights

MAX_TOKENS = 192


class KeptAnswers:
    """The base's greedy answers to the first `n` prompts of a file. None for an answer that does not end within the
    limit.
    """

    def __init__(self, digest: str, answers: Sequence[Text | None]) -> None:
        self.digest = digest
        self.answers = answers

    @classmethod
    def load(cls, file: Path, n: int, policy: Policy, cache_dir: Path) -> "KeptAnswers":
        """Raises LearnerError if `file` is not a file of prompts."""
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        identity = f"retained {revision(policy.base_dir)} {digest} {n} {MAX_TOKENS}"
        cache = cache_dir / f"retained-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
        if not cache.exists():
            found = _answers(read_prompts(file)[:n], policy)
            keep_text(cache, json.dumps([[list(t.prompt_ids), list(t.completion_ids)] if t else None for t in found]))
            return cls(digest, found)
        pairs = json.loads(cache.read_text(encoding="utf-8"))
        return cls(digest, [Text(*pair) if pair else None for pair in pairs])

    def record(self, policy: Policy) -> dict[str, Any]:
        """The record in a version directory for the policy's current weights."""
        known = [(i, answer) for i, answer in enumerate(self.answers) if answer is not None]
        with torch.no_grad(), policy.folded():
            likeliest = policy.top([answer for _, answer in known], 1)
        same = [
            i
            for (i, answer), ids in zip(known, likeliest, strict=True)
            if ids[:, 0].tolist() == list(answer.completion_ids)
        ]
        return {"schema": 1, "prompts": self.digest, "n": len(self.answers), "unchanged": same}


def _answers(prompts: Sequence[Mapping[str, Any]], policy: Policy) -> list[Text | None]:
    """Each prompt with the base's likeliest continuation, through its end token. None if that does not come."""
    rendered = [render(policy.tokenizer, prompt["messages"], prompt.get("tools") or ()) for prompt in prompts]
    ends = end_ids(policy)
    with torch.no_grad(), policy.using(Weights.BASE):
        answers = generate(rendered, policy, MAX_TOKENS, is_sampled=False)
    return [Text(ids, answer) if answer[-1] in ends else None for ids, answer in zip(rendered, answers, strict=True)]
