"""Forward: rows through a causal LM to `Predictions`: packed and projected if the model allows it, else padded and
whole.

A trial on a few tokens decides this once. Some models give other values packed than alone: their layers carry a state
from token to token, they scale or cap their logits, or they pass no layout to their attention. These stay padded.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import structlog
import torch
from peft.tuners.lora import LoraLayer
from transformers.modeling_layers import GradientCheckpointingLayer

from burnish.learner.data.rows import Text, Tokens, pack
from burnish.learner.model.packing import N_LITTLE, NAME, Layout, fill, without_mask
from burnish.learner.model.predictions import Dense, Predictions, Projected

log = structlog.get_logger()


class Forward:
    """Computes predictions for rows. `is_packed` may be set to False by hand: the values are the same up to rounding.

    `is_checkpointed` keeps no activations of the layers. Backward computes them again, in a third more time.
    """

    def __init__(self, model: Any, *, is_checkpointed: bool = False) -> None:
        self._model = model
        base = model.get_base_model()
        self.dtype: torch.dtype = base.get_output_embeddings().weight.dtype
        self._adapted = [module for module in model.modules() if isinstance(module, LoraLayer)]
        with self._in_base_type():
            self.is_packed = _agrees(model)
        self._checkpointed: list[Any] = []
        if is_checkpointed:
            base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            self._checkpointed = [module for module in base.modules() if isinstance(module, GradientCheckpointingLayer)]

    def batches(self, rows: Sequence[Tokens], budget: int) -> list[list[int]]:
        """Indices of `rows` in micro-batches of at most `budget` tokens, counted packed or padded as they will run."""
        return fill(rows, budget) if self.is_packed else pack(rows, budget)

    def predictions(self, rows: Sequence[Tokens]) -> Predictions:
        """The model's predictions at each row's completion, rows concatenated."""
        with self._keeping_little(), self._in_base_type():
            return _packed(self._model, rows) if self.is_packed else _padded(self._model, rows)

    @contextmanager
    def _keeping_little(self) -> Iterator[None]:
        """Layers recompute only in training mode, in which sampling would lose its cache. So this mode is on only here
        and only with gradient.
        """
        is_on = torch.is_grad_enabled()
        for layer in self._checkpointed:
            layer.training = is_on
        try:
            yield
        finally:
            for layer in self._checkpointed:
                layer.training = False

    @contextmanager
    def _in_base_type(self) -> Iterator[None]:
        """A bf16 base's adapter is computed in bf16 too, as the engine does. Its parameters and gradients stay fp32.

        PEFT would compute it in fp32. It would copy every activation for that, which took more of a GPU's time than the
        base's matrices.
        """
        if self.dtype != torch.bfloat16:
            yield
            return
        for layer in self._adapted:
            layer.cast_input_dtype_enabled = False
        try:
            with torch.autocast(self._model.device.type, torch.bfloat16):
                yield
        finally:
            for layer in self._adapted:
                layer.cast_input_dtype_enabled = True


def _packed(model: Any, rows: Sequence[Tokens], n_little: int = N_LITTLE) -> Projected:
    base = model.get_base_model()
    head = base.get_output_embeddings().weight
    layout = Layout.of(rows, head.device, n_little)
    with without_mask():
        hidden = base.get_decoder()(
            input_ids=layout.ids[None], position_ids=layout.positions[None], use_cache=False, packed=layout
        ).last_hidden_state[0]
    return Projected(hidden.index_select(0, layout.targets), head)


def _padded(model: Any, rows: Sequence[Tokens]) -> Dense:
    """Padded on the left, so that all completions end in the last columns and `logits_to_keep` spares the head the
    rest.
    """
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
    return Dense(torch.log_softmax(logits[kept.to(device)].float(), -1))


@torch.no_grad()
def _agrees(model: Any) -> bool:
    """True if packed rows, some with a common beginning, get the same distributions as each row alone.

    If so, the model keeps the attention that knows layouts. Without a layout it works as SDPA does.
    """
    base = model.get_base_model()
    config, n_vocab = base.config.get_text_config(), base.get_output_embeddings().weight.shape[0]
    before = config._attn_implementation
    if before != "sdpa":
        log.warning("rows will be padded: the model does not use SDPA", attention=before)
        return False
    ids = [i % n_vocab for i in range(1, 40)]
    rows = [Text(ids[:24], ids[24:28]), Text(ids[:20], ids[30:33]), Text(ids[30:35], ids[:3])]
    alone = _padded(model, rows).logprobs
    config._attn_implementation = NAME
    try:
        difference = (_packed(model, rows, n_little=0).dense() - alone).abs()  # with the attention of `alone`
        if bool(difference.max() < 1e-3) if _is_float32(model) else bool(difference.mean() < 0.05):
            return True
        log.warning("rows will be padded: packed rows give other values", largest=float(difference.max()))
    except (AttributeError, TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        log.warning("rows will be padded: the model cannot be run packed", error=str(error))
    config._attn_implementation = before
    return False


def _is_float32(model: Any) -> bool:
    return bool(model.get_base_model().get_output_embeddings().weight.dtype == torch.float32)
