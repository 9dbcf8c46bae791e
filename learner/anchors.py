"""Anchors: the base's own answers to general prompts, replayed in every step against forgetting.

Self-generated, so of the base's own distribution and free of anybody's data. Guarantees: sampled once per base and file
(cached under a name made of both digests), the same on every machine for the same seed; an answer that breaks off at the
length limit or fails its `check` is no anchor.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from burnish.errors import LearnerError
from learner.base import revision
from learner.policy import Policy, Weights
from learner.prompts import render
from learner.rows import Text

_BATCH = 32


class Anchors:
    """A fixed collection of anchors to draw from."""

    def __init__(self, texts: Sequence[Text]) -> None:
        self.texts = texts

    @classmethod
    def load(cls, file: Path, policy: Policy, cache_dir: Path, *, max_new_tokens: int = 128, seed: int = 0) -> "Anchors":
        """The anchors of the JSONL `file` ({"messages": …, "tools"?: …, "check"?: regex for the whole answer})."""
        prompts = read_prompts(file)
        identity = f"{revision(policy.base_dir)} {hashlib.sha256(file.read_bytes()).hexdigest()} {max_new_tokens} {seed}"
        cache = cache_dir / f"anchors-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
        if not cache.exists():
            texts = _generate(prompts, policy, max_new_tokens, seed)
            cache_dir.mkdir(parents=True, exist_ok=True)
            aside = cache.with_name(f".{cache.name}.{os.getpid()}")
            aside.write_text(json.dumps([[list(t.prompt_ids), list(t.completion_ids)] for t in texts]), encoding="utf-8")
            aside.replace(cache)
        pairs = json.loads(cache.read_text(encoding="utf-8"))
        return cls([Text(prompt_ids, completion_ids) for prompt_ids, completion_ids in pairs])

    def draw(self, n: int, generator: torch.Generator) -> list[Text]:
        """`n` different anchors, or all where there are fewer."""
        order = torch.randperm(len(self.texts), generator=generator)[:n]
        return [self.texts[i] for i in order.tolist()]


def read_prompts(file: Path) -> list[Mapping[str, Any]]:
    """The prompts of a JSONL file. Raises LearnerError where it is none."""
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        prompts = [json.loads(line) for line in lines]
        for prompt in prompts:
            re.compile(prompt.get("check") or "")
            prompt["messages"][0]["role"]
    except OSError as error:
        raise LearnerError(f"cannot read the prompts {file}: {error.strerror}") from error
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, re.error) as error:
        raise LearnerError(f"{file} is no file of prompts (lines of {{messages, tools?, check?}}): {error!r}") from error
    return prompts


def _generate(prompts: Sequence[Mapping[str, Any]], policy: Policy, max_new_tokens: int, seed: int) -> list[Text]:
    """The base's answer to each prompt at temperature 1, where it ends by itself and passes its check."""
    tokenizer = policy.tokenizer
    rendered = [render(tokenizer, prompt["messages"], prompt.get("tools") or ()) for prompt in prompts]
    order = sorted(range(len(prompts)), key=lambda i: len(rendered[i]))
    answers: dict[int, list[int]] = {}
    with torch.random.fork_rng(), torch.no_grad(), policy.using(Weights.BASE):
        torch.manual_seed(seed)
        for start in range(0, len(order), _BATCH):
            chosen = order[start : start + _BATCH]
            answers |= dict(zip(chosen, _answer([rendered[i] for i in chosen], policy, max_new_tokens), strict=True))
    texts = []
    for i, prompt in enumerate(prompts):
        answer = answers[i]
        if not answer or answer[-1] not in end_ids(policy):
            continue
        check = prompt.get("check")
        if not check or re.fullmatch(check, tokenizer.decode(answer, skip_special_tokens=True), re.DOTALL):
            texts.append(Text(rendered[i], answer))
    return texts


def _answer(prompts: Sequence[Sequence[int]], policy: Policy, max_new_tokens: int) -> list[list[int]]:
    """Sampled ids for a batch, each up to and with its end token."""
    width = max(len(ids) for ids in prompts)
    ends = end_ids(policy)
    pad = ends[0]
    ids = torch.tensor([[pad] * (width - len(row)) + list(row) for row in prompts], device=policy.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts], device=policy.device)
    out = policy.model.generate(
        input_ids=ids,
        attention_mask=mask,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=max_new_tokens,
        eos_token_id=ends,
        pad_token_id=pad,
    )
    answers = []
    for row in out[:, width:].tolist():
        end = next((i for i, token in enumerate(row) if token in ends), len(row) - 1)
        answers.append(row[: end + 1])
    return answers


def end_ids(policy: Policy) -> list[int]:
    """Ids that end a reply: the generation configuration's, else the tokenizer's."""
    configured = policy.model.generation_config.eos_token_id
    found = configured if configured is not None else policy.tokenizer.eos_token_id
    if found is None:
        raise LearnerError(f"the base model in {policy.base_dir} names no end-of-sequence token")
    return list(found) if isinstance(found, list) else [int(found)]
