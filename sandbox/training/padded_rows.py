"""Rows become padded batches: token ids, and the mask of the tokens that the model learns to write.

Guarantees: the loss mask covers each assistant message from its first token to its `<|end|>` and nothing else. Rows
that share a long opening (every judging row begins with the same system message) are cut after it, so that a batch
computes it once.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerFast

from burnish.sandbox.training.corpus import Row
from burnish.sandbox.training.tokenizer import ASSISTANT, END

_POOL = 8
"""Batches drawn at a time and sorted by length, so that little of a batch is padding."""

Draw = Callable[[random.Random], Row]


@dataclass(frozen=True, slots=True)
class Batch:
    """Right-padded rows. The shared opening `prefix` [P] (maybe empty) precedes each of them and is not in `ids`."""

    prefix: torch.Tensor  # [P]
    ids: torch.Tensor  # [B, L]
    is_real: torch.Tensor  # [B, L] bool, False on padding
    is_target: torch.Tensor  # [B, L] bool, True on tokens to learn


def encode(tokenizer: PreTrainedTokenizerFast, row: Row) -> tuple[list[int], list[bool]]:
    """The row's token ids and, for each, whether the assistant writes it."""
    ids: list[int] = tokenizer.apply_chat_template(row.messages, tools=row.tools, tokenize=True, return_dict=False)
    opening, closing = tokenizer.convert_tokens_to_ids([ASSISTANT, END])
    mask, is_assistant = [], False
    for token in ids:
        mask.append(is_assistant)
        is_assistant = token == opening or (is_assistant and token != closing)
    return ids, mask


def batches(
    tokenizer: PreTrainedTokenizerFast,
    draw: Draw,
    rng: random.Random,
    n_rows: int,
    prefix: list[int],
) -> Iterator[Batch]:
    """Batches of `n_rows` fresh rows without end. Every row must begin with `prefix`."""
    while True:
        pool = sorted((encode(tokenizer, draw(rng)) for _ in range(n_rows * _POOL)), key=lambda row: len(row[0]))
        chunks = [pool[at : at + n_rows] for at in range(0, len(pool), n_rows)]
        rng.shuffle(chunks)
        for chunk in chunks:
            yield _pad(chunk, prefix, int(tokenizer.pad_token_id))


def shared_prefix(tokenizer: PreTrainedTokenizerFast, draw: Draw) -> list[int]:
    """The opening that all rows of `draw` share, up to the end of the first message, or nothing."""
    rows = [encode(tokenizer, draw(random.Random(seed)))[0] for seed in range(8)]
    end = rows[0].index(int(tokenizer.eos_token_id)) + 1
    return rows[0][:end] if all(row[:end] == rows[0][:end] for row in rows) else []


def _pad(rows: list[tuple[list[int], list[bool]]], prefix: list[int], pad: int) -> Batch:
    n_prefix = len(prefix)
    if any(ids[:n_prefix] != prefix for ids, _ in rows):
        raise ValueError("expected every row of the batch to begin with the shared opening, got one that does not")
    longest = max(len(ids) for ids, _ in rows) - n_prefix
    tokens = torch.full((len(rows), longest), pad)
    is_target = torch.zeros((len(rows), longest), dtype=torch.bool)
    is_real = torch.zeros((len(rows), longest), dtype=torch.bool)
    for at, (ids, mask) in enumerate(rows):
        n_tokens = len(ids) - n_prefix
        tokens[at, :n_tokens] = torch.tensor(ids[n_prefix:])
        is_target[at, :n_tokens] = torch.tensor(mask[n_prefix:])
        is_real[at, :n_tokens] = True
    return Batch(torch.tensor(prefix, dtype=torch.long), tokens, is_real, is_target)
