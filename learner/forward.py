"""Forward: rows through a causal LM to `Predictions`: packed and projected where the model allows it, else padded and whole.

Whether it does is tried once, on a few tokens: a model whose layers carry a state from token to token, that scales or caps its
logits, or that hands its attention no layout gives other values packed than it gives by itself, and stays padded.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import structlog
import torch
from torch import Tensor

from learner.layout import NAME, Layout, fill
from learner.predictions import Dense, Predictions, Projected
from learner.rows import Text, Tokens, pack

log = structlog.get_logger()


class Forward:
    """The way from rows to predictions. `is_packed` may be set to False by hand: the values are the same to rounding."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.is_packed = _agrees(model)

    def batches(self, rows: Sequence[Tokens], budget: int) -> list[list[int]]:
        """Indices of `rows` in micro-batches of at most `budget` tokens as this way counts them."""
        return fill(rows, budget) if self.is_packed else pack(rows, budget)

    def predictions(self, rows: Sequence[Tokens]) -> Predictions:
        """What the model says at each row's completion, rows one behind the other, at each row's temperature."""
        return _packed(self._model, rows) if self.is_packed else _padded(self._model, rows)


def _packed(model: Any, rows: Sequence[Tokens]) -> Projected:
    base = model.get_base_model()
    head = base.get_output_embeddings().weight
    layout = Layout.of(rows, head.device)
    with _attention(base):
        hidden = base.get_decoder()(
            input_ids=layout.ids[None], position_ids=layout.positions[None], use_cache=False, packed=layout
        ).last_hidden_state[0]
    return Projected(hidden.index_select(0, layout.targets), head, _temperatures(rows, head.device))


@contextmanager
def _attention(base: Any) -> Iterator[None]:
    """Attention over a `Layout` inside the block; sampling goes on as it did."""
    config = base.config.get_text_config()
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before


def _padded(model: Any, rows: Sequence[Tokens]) -> Dense:
    """Padded on the left, so that all completions end in the last columns and `logits_to_keep` spares the head the rest."""
    lengths = [len(row.prompt_ids) + len(row.completion_ids) - 1 for row in rows]
    width, n_keep = max(lengths), max(len(row.completion_ids) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    kept = torch.zeros(len(rows), n_keep, dtype=torch.bool)
    for i, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        ids[i, width - length :] = torch.tensor([*row.prompt_ids, *row.completion_ids][:-1])
        mask[i, width - length :] = 1
        kept[i, n_keep - len(row.completion_ids) :] = True
    device = model.get_base_model().get_output_embeddings().weight.device
    logits = model(
        input_ids=ids.to(device),
        attention_mask=mask.to(device),
        position_ids=(mask.cumsum(1) - 1).clamp(min=0).to(device),
        logits_to_keep=n_keep,
        use_cache=False,
    ).logits
    return Dense(torch.log_softmax(logits[kept.to(device)].float() / _temperatures(rows, device)[:, None], -1))


def _temperatures(rows: Sequence[Tokens], device: torch.device) -> Tensor:
    return torch.tensor([row.temperature for row in rows for _ in row.completion_ids], device=device)


@torch.no_grad()
def _agrees(model: Any) -> bool:
    """Whether packed rows, some with a common beginning, get the distributions that the model gives them by itself."""
    n_vocab = model.get_base_model().get_output_embeddings().weight.shape[0]
    ids = [i % n_vocab for i in range(1, 40)]
    rows = [Text(ids[:24], ids[24:28]), Text(ids[:20], [*ids[30:33]]), Text(ids[30:35], ids[:3], 0.7)]
    try:
        difference = (_packed(model, rows).dense() - _padded(model, rows).logprobs).abs()
    except (AttributeError, TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        log.warning("rows will be padded: the model cannot be run packed", error=str(error))
        return False
    is_same = bool(difference.max() < 1e-3) if _is_float32(model) else bool(difference.mean() < 0.05)
    if not is_same:
        log.warning("rows will be padded: packed ones get other values", largest=float(difference.max()))
    return is_same


def _is_float32(model: Any) -> bool:
    return bool(model.get_base_model().get_output_embeddings().weight.dtype == torch.float32)
