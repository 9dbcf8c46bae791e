"""Anchors: the beginnings of the base's own answers to general prompts, part of every step against forgetting.

They are self-generated, so they contain nobody's data. They are the base's likeliest answers: a small model that is
sampled at temperature 1 writes nonsense, and holding its predictions there keeps nothing that anybody asks for.

An anchor ends with the first clause of the answer. What the base knows is mostly said by then. Whether a comma or
another sentence follows is its style, and a user may want another one (docs/decisions/0046-anchors-of-one-clause.md).
An answer with a `check` is right as a whole, and one to a prompt with tools may be a call, so these stay whole.
Guarantees: they are made once per base and file (cached under a name made of both digests; those of known models
ship). An answer that fails its `check` is not used.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from burnish.config import OF_KNOWN_BASES
from burnish.errors import LearnerError
from burnish.files import keep_text
from burnish.learner.data.rows import Text
from burnish.learner.data.teacher_prompts import render
from burnish.learner.model.base_model import revision
from burnish.learner.model.generation import generate
from burnish.learner.model.policy import Policy, Weights

MAX_NEW_TOKENS = 32
"""Longest answer that is generated."""
_COMMA = re.compile(r"\s*[,，、]\s*")
_SENTENCE = re.compile(r"[.!?。！？][)\"'”]*\s*$")


class Anchors:
    """A fixed collection of anchors to draw from."""

    def __init__(self, texts: Sequence[Text]) -> None:
        self.texts = texts

    @classmethod
    def load(cls, file: Path, policy: Policy, cache_dir: Path, *, max_new_tokens: int = MAX_NEW_TOKENS) -> "Anchors":
        """The anchors of the JSONL `file` ({"messages": …, "tools"?: …, "check"?: regex for the whole answer})."""
        prompts = read_prompts(file)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        identity = f"{revision(policy.base_dir)} {digest} {max_new_tokens} first clause"
        cache = cache_dir / f"anchors-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
        shipped = OF_KNOWN_BASES / cache.name
        if shipped.exists():
            cache = shipped
        elif not cache.exists():
            texts = _generate(prompts, policy, max_new_tokens)
            keep_text(cache, json.dumps([[list(t.prompt_ids), list(t.completion_ids)] for t in texts]))
            return cls(texts)
        pairs = json.loads(cache.read_text(encoding="utf-8"))
        return cls([Text(prompt_ids, completion_ids) for prompt_ids, completion_ids in pairs])

    def draw(self, n: int, generator: torch.Generator) -> list[Text]:
        """`n` different anchors, or all if there are fewer."""
        order = torch.randperm(len(self.texts), generator=generator)[:n]
        return [self.texts[i] for i in order.tolist()]


def first_clause(ids: Sequence[int], tokenizer: Any) -> list[int]:
    """The ids of an answer up to its first comma, the end of its first sentence, or a blank line. An answer of one
    clause keeps its end token.
    """
    before = tokenizer.decode(ids[:1])
    for n in range(1, len(ids)):
        text = tokenizer.decode(ids[: n + 1])
        new = text[len(before) :]
        begins_another = _SENTENCE.search(before) is not None and new[:1].isspace()
        if _COMMA.fullmatch(new) or begins_another or "\n\n" in new:
            return list(ids[:n])
        before = text
    return list(ids)


def read_prompts(file: Path) -> list[Mapping[str, Any]]:
    """The prompts of a JSONL file. Raises LearnerError if it is not one."""
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        prompts = [json.loads(line) for line in lines]
        for prompt in prompts:
            re.compile(prompt.get("check") or "")
            prompt["messages"][0]["role"]
    except OSError as error:
        raise LearnerError(f"cannot read the prompts {file}: {error.strerror}") from error
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, re.error) as error:
        raise LearnerError(
            f"{file} is not a file of prompts (lines of {{messages, tools?, check?}}): {error!r}"
        ) from error
    return prompts


def _generate(prompts: Sequence[Mapping[str, Any]], policy: Policy, max_new_tokens: int) -> list[Text]:
    """The beginning of the base's likeliest answer to each prompt, if it passes its check."""
    tokenizer = policy.tokenizer
    rendered = [render(tokenizer, prompt["messages"], prompt.get("tools") or ()) for prompt in prompts]
    with torch.no_grad(), policy.using(Weights.BASE):
        answers = generate(rendered, policy, max_new_tokens, is_sampled=False)
    texts = []
    for prompt, ids, answer in zip(prompts, rendered, answers, strict=True):
        if not answer:
            continue
        check = prompt.get("check")
        if not check or re.fullmatch(check, tokenizer.decode(answer, skip_special_tokens=True), re.DOTALL):
            is_whole = check or prompt.get("tools")
            texts.append(Text(ids, answer if is_whole else first_clause(answer, tokenizer)))
    return texts
