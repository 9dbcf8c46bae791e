"""The plain side: the same loss with transformers and PEFT alone, in padded micro-batches, at the size that is fastest.

Rows are sorted by length, so that little is padded. Only completions pass the head. Nothing is checkpointed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from benchmarks.gpu import rows as agents
from benchmarks.gpu import shapes, timing
from benchmarks.gpu.shapes import Shape
from benchmarks.gpu.timing import Figures
from benchmarks.learner.rows import SETTINGS

SIZES = (1, 2, 4, 8, 16)
Batch = dict[str, Tensor]


def measure(shape: Shape, device: str) -> Figures:
    """Figures at the fastest micro-batch size in rows."""
    model, _ = shapes.adapted(shapes.build(shape, device))
    rows = sorted(agents.agent_rows(shape), key=lambda row: len(row["prompt_ids"]) + len(row["completion_ids"]))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=SETTINGS["learning_rate"], betas=(0.9, 0.98), weight_decay=0.0)
    n_completion_tokens, flops = agents.facts(rows)["n_completion_tokens"], agents.step_flops(shape, rows)
    norms: list[float] = []

    def take(size: int) -> float:
        optimizer.zero_grad(set_to_none=True)
        batches = [padded(rows[i : i + size], device) for i in range(0, len(rows), size)]
        with torch.no_grad(), model.disable_adapter():
            references = [logprobs(model, batch) for batch in batches]
        for batch, reference in zip(batches, references, strict=True):
            found = logprobs(model, batch)
            (_losses(found, reference, batch) / n_completion_tokens).backward()  # type: ignore[no-untyped-call]
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained, SETTINGS["max_grad_norm"])))
        optimizer.step()
        return flops

    steps = timing.sweep(take, SIZES, device)
    facts = agents.facts(rows)
    best = timing.best_of(steps, SIZES, facts["n_row_tokens"], device)
    return dict(facts) | best | ({"first_grad_norm": norms[0]} if norms else {})


def padded(rows: Sequence[Mapping[str, Any]], device: str) -> Batch:
    """Prompts padded on the left and completions on the right, so that all completions begin in one column."""
    prompts = [torch.tensor(row["prompt_ids"]) for row in rows]
    completions = [torch.tensor(row["completion_ids"]) for row in rows]
    left, right = ({"batch_first": True, "padding_side": side} for side in ("left", "right"))
    ids = [pad_sequence(prompts, **left), pad_sequence(completions, **right)]  # type: ignore[arg-type]
    masks = [
        pad_sequence([torch.ones_like(p) for p in prompts], **left),  # type: ignore[arg-type]
        pad_sequence([torch.ones_like(c) for c in completions], **right),  # type: ignore[arg-type]
    ]
    batch = {
        "ids": torch.cat(ids, 1),
        "mask": torch.cat(masks, 1),
        "completion_mask": masks[1],
        "advantages": torch.tensor([row["advantage"] for row in rows])[:, None],
    }
    return {name: tensor.to(device) for name, tensor in batch.items()}


def logprobs(model: Any, batch: Batch) -> Tensor:
    """Log-probs [B, C] of the completions' tokens. Those of padding mean nothing."""
    n = batch["completion_mask"].shape[1]
    logits = model(
        input_ids=batch["ids"],
        attention_mask=batch["mask"],
        position_ids=(batch["mask"].cumsum(1) - 1).clamp(min=0),
        logits_to_keep=n + 1,
        use_cache=False,
    ).logits[:, :-1]
    found: Tensor = torch.log_softmax(logits.float(), -1).gather(-1, batch["ids"][:, -n:, None]).squeeze(-1)
    return found


def _losses(found: Tensor, reference: Tensor, batch: Batch) -> Tensor:
    """The sum of the clipped losses and the KL to the base. The adapter is fresh at first, so the base is μ."""
    ratio, advantages, clip = torch.exp(found - reference), batch["advantages"], SETTINGS["clip"]
    clipped = torch.maximum(-ratio * advantages, -ratio.clamp(1 - clip, 1 + clip) * advantages)
    kl = torch.exp(reference - found) + found - reference - 1.0
    losses: Tensor = (clipped + SETTINGS["beta"] * kl) * batch["completion_mask"]
    return losses.sum()
