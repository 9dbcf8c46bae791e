"""`python -m benchmarks.learning.wish`: whether the wish, as grader of shadow groups, prefers replies that follow it.

The sandbox's base answers held-out prompts four times each. If the first reply breaks the house style, all four are
scored on the canonical hint for one of the broken attributes. A program decides which replies follow it.
"""

import argparse
import json
import random
from array import array
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from burnish.learner.data.rows import Text
from burnish.learner.data.teacher_prompts import hinted_prompt, render
from burnish.learner.grading.hint_grader import posteriors
from burnish.learner.model.generation import generate
from burnish.learner.model.policy import Policy, Weights
from burnish.sandbox import MODEL
from burnish.sandbox.world import heldout, language, style_hints

N_PROMPTS, N_MEMBERS, MAX_TOKENS = 60, 4, 48


def measure(seed: int = 0) -> dict[str, float]:
    """Mean scores of members that follow the wish and of those that do not, and `auc`.

    `auc` is how often one of the former outranks one of the latter.
    """
    torch.manual_seed(seed)
    rng, policy = random.Random(seed), Policy.load(MODEL, rank=16, alpha=32, threads=1, device="cpu")
    prompts = heldout.prompts()[:N_PROMPTS]
    rendered = [array("i", render(policy.tokenizer, prompt.messages, ())) for prompt in prompts]
    with torch.no_grad(), policy.using(Weights.BASE):
        replies = generate([ids for ids in rendered for _ in range(N_MEMBERS)], policy, MAX_TOKENS, is_sampled=True)
    plain: list[Text] = []
    hinted: list[Text] = []
    has_heeded: list[bool] = []
    for place, (prompt, ids) in enumerate(zip(prompts, rendered, strict=True)):
        members = replies[place * N_MEMBERS : (place + 1) * N_MEMBERS]
        broken = [language.violations(_text(policy, each), language.HOUSE_STYLE) for each in members]
        if not broken[0]:
            continue
        name = rng.choice(broken[0])
        with_wish = hinted_prompt(
            policy.tokenizer, prompt.messages, (), style_hints.CANONICAL[name, language.HOUSE_STYLE[name]], ids
        )
        assert with_wish is not None
        plain += [Text(ids, array("i", each)) for each in members]
        hinted += [Text(with_wish, array("i", each)) for each in members]
        has_heeded += [name not in each for each in broken]
    scores = posteriors(policy, plain, hinted)
    heeded = [score for score, kept in zip(scores, has_heeded, strict=True) if kept]
    ignored = [score for score, kept in zip(scores, has_heeded, strict=True) if not kept]
    outranked = sum((a > b) + 0.5 * (a == b) for a in heeded for b in ignored)
    return {
        "groups": len(scores) / N_MEMBERS,
        "heeded": len(heeded),
        "ignored": len(ignored),
        "heeded_score": sum(heeded) / len(heeded),
        "ignored_score": sum(ignored) / len(ignored),
        "auc": outranked / (len(heeded) * len(ignored)),
    }


def _text(policy: Policy, ids: Sequence[int]) -> str:
    return str(policy.tokenizer.decode(ids, skip_special_tokens=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning.wish", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    figures = measure()
    for name, value in figures.items():
        Console().print(f"{name} {value:.4g}", highlight=False)
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
