"""The training of the base model: the architecture, the loss, the optimiser and the loop.

Loss is cross-entropy on the assistant's tokens alone. Hidden matrices are trained by Muon (with orthogonalised
updates), embeddings and norms by AdamW, both on one warm-up and cosine schedule, in rounds that begin with fresh
optimisers. Guarantee: a seed and a thread count give the same weights, bit for bit, on one machine.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch.nn import functional
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    DynamicCache,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from burnish.sandbox.training import corpus, judging_rows
from burnish.sandbox.training.padded_rows import Batch, batches, shared_prefix
from burnish.sandbox.training.tokenizer import VOCABULARY

CHAT_ROWS, VERDICT_ROWS = 32, 12
"""Rows of each kind in one step."""

VERDICT_WEIGHT = 0.3
"""Share of the verdicts in the loss. By tokens it would be half of that, and the one token that names the hint's
attribute would be learned last.
"""

MUON_RATE, ADAM_RATE = 0.02, 4e-3


@dataclass(frozen=True, slots=True)
class Round:
    """One pass of the schedule: its share of all steps, its peak rate relative to the one above, how often rare rows
    are drawn, and rows of either kind in one step with the share of the verdicts in the loss.
    """

    share: float
    rate: float
    counts: float
    pairs: float
    chat_rows: int = CHAT_ROWS
    verdict_rows: int = VERDICT_ROWS
    verdict_weight: float = VERDICT_WEIGHT


ROUNDS = (
    Round(share=0.5, rate=1.0, counts=0.05, pairs=0.04),
    Round(share=0.28125, rate=0.5, counts=0.15, pairs=0.04),
    Round(share=0.21875, rate=0.5, counts=0.15, pairs=0.2),
)
"""Copying emerges late in the first round. The others make it exact, and teach what is rare: where a count ends (one
token of a hundred), and corrections of two attributes at once.
"""

FURTHER = (Round(share=1.0, rate=0.35, counts=0.1, pairs=0.15, chat_rows=16, verdict_rows=16, verdict_weight=0.5),)
"""One more round from saved weights, after a prompt's words have changed."""

_WARM_UP = 0.03
_BETAS = (0.9, 0.95)
_ATTENTION = "sdpa_in_float32"


def _attend(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **more: Any) -> Any:
    # On a CPU bfloat16 doubles the speed of matrix products and halves that of attention's backward pass.
    with torch.autocast("cpu", enabled=False):
        return sdpa_attention_forward(module, query.float(), key.float(), value.float(), *args, **more)


AttentionInterface.register(_ATTENTION, _attend)
AttentionMaskInterface.register(_ATTENTION, sdpa_mask)


def is_fast_here() -> bool:
    """True if the CPU multiplies bfloat16 matrices natively. If torch would emulate it, steps are taken in float32."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def build_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A small Llama with fresh weights, drawn from torch's global generator."""
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=6,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.04,
        **ends,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(**ends)
    return model


def train(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    n_steps: int,
    seed: int | str,
    on_step: Callable[[float], None],
    rounds: Sequence[Round] = ROUNDS,
) -> None:
    """Train in place, `n_steps` over all `rounds`. `on_step` gets each step's loss."""
    n_done = 0
    with accelerated(model):
        for number, each in enumerate(rounds):
            is_last = number == len(rounds) - 1
            n_round = n_steps - n_done if is_last else round(each.share * n_steps)
            train_round(model, tokenizer, each, n_round, f"{seed}{' again' * number}", on_step)
            n_done += n_round


@contextmanager
def accelerated(model: LlamaForCausalLM) -> Iterator[None]:
    """The model in training, with the attention that is fast on a CPU. Afterwards it is ready for use."""
    model.set_attn_implementation(_ATTENTION)
    model.train()
    yield
    model.set_attn_implementation("sdpa")
    model.eval()


def train_round(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    settings: Round,
    n_steps: int,
    seed: str,
    on_step: Callable[[float], None],
) -> None:
    """One round: fresh rows, fresh optimisers, one warm-up and decay."""
    draw_chat = partial(corpus.draw_row, counts=settings.counts)
    chats = batches(tokenizer, draw_chat, random.Random(f"chat {seed}"), settings.chat_rows, [])
    draw_verdict = partial(judging_rows.draw_row, pairs=settings.pairs)
    prefix = shared_prefix(tokenizer, draw_verdict)
    judged = batches(tokenizer, draw_verdict, random.Random(f"verdict {seed}"), settings.verdict_rows, prefix)
    optimizers = _optimizers(model, settings.rate)
    schedules = [torch.optim.lr_scheduler.LambdaLR(each, lambda at: _schedule(at, n_steps)) for each in optimizers]
    weight = settings.verdict_weight
    for _ in range(n_steps):
        loss = (1 - weight) * mean_loss(model, next(chats)) + weight * mean_loss(model, next(judged))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
        on_step(loss.item())


def mean_loss(model: LlamaForCausalLM, batch: Batch) -> torch.Tensor:
    """The mean cross-entropy of the batch's target tokens."""
    n_rows, n_prefix = len(batch.ids), len(batch.prefix)
    with torch.autocast("cpu", torch.bfloat16, enabled=is_fast_here()):
        cache = None
        if n_prefix:  # computed once, then read by every row; gradients flow back through it
            cache = DynamicCache()
            model.model(batch.prefix[None], past_key_values=cache, use_cache=True)
            cache.batch_repeat_interleave(n_rows)
        # Rows are padded on the right, so causality alone keeps real tokens from attending to padding. No mask is
        # needed.
        hidden = model.model(
            batch.ids, past_key_values=cache, use_cache=cache is not None
        ).last_hidden_state  # [B, L, D]
        is_predicted = batch.is_target[:, 1:]
        logits = model.lm_head(hidden[:, :-1][is_predicted])  # [N, V]
    targets = batch.ids[:, 1:][is_predicted]
    return functional.cross_entropy(logits.float(), targets)


def _optimizers(model: LlamaForCausalLM, rate: float) -> list[torch.optim.Optimizer]:
    matrices = [weight for name, weight in model.named_parameters() if weight.ndim == 2 and "embed" not in name]
    chosen = {id(weight) for weight in matrices}
    others = [weight for weight in model.parameters() if id(weight) not in chosen]
    return [
        torch.optim.Muon(matrices, lr=rate * MUON_RATE, weight_decay=0.01, momentum=0.95),
        torch.optim.AdamW(others, lr=rate * ADAM_RATE, betas=_BETAS, weight_decay=0.0),
    ]


def _schedule(step: int, n_steps: int) -> float:
    warm_up = max(1, round(_WARM_UP * n_steps))
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, n_steps - warm_up)))


def n_parameters(model: LlamaForCausalLM) -> int:
    """Weights, tied ones counted once."""
    return cast(int, sum(weight.numel() for weight in model.parameters()))
