"""Row: one training sequence with the per-token streams of the objectives. TokenBatch: rows on one token axis.

A stream is a tensor with the row's completion as its first axis. A row that lacks a stream is left out of it and never
filled with zeros, so a term cannot touch a row that it was not meant for.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from burnish.learner.data.samples import Sample
from burnish.learner.model.predictions import Dense, Predictions
from burnish.records import FloatArray


class Tokens(Protocol):
    """What the policy needs to score a completion: the engine's token ids."""

    @property
    def prompt_ids(self) -> Sequence[int]: ...
    @property
    def completion_ids(self) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class Text:
    """Plain `Tokens`."""

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Place:
    """A row's place in a shadow group: the live turn that names the group, the member's score and its behaviour
    log-probs.
    """

    group: str
    score: float
    behaviour_logprobs: FloatArray


@dataclass(slots=True)
class Row:
    """One sequence of a step. `sample` is None for an anchor and for a member of a shadow group, which has a `place`
    instead.

    `streams` maps a name to a tensor [T, ...]. `weight` multiplies its losses: 1, or less if a cap applies.
    """

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    sample: Sample | None = None
    streams: dict[str, Tensor] = field(default_factory=dict)
    weight: float = 1.0
    place: Place | None = None

    @classmethod
    def of(cls, sample: Sample) -> "Row":
        return cls(sample.prompt_ids, sample.completion_ids, sample)

    @property
    def n_tokens(self) -> int:
        return len(self.completion_ids)

    @property
    def is_own(self) -> bool:
        """True for a reply that the agent gave: a live one, or a member of a shadow group."""
        return self.sample is not None or self.place is not None

    @property
    def behaviour_logprobs(self) -> "FloatArray | None":
        """The engine's log-probs if they make a usable ratio, else None."""
        if self.place is not None:
            return self.place.behaviour_logprobs
        return self.sample.behaviour_logprobs if self.sample is not None and self.sample.has_ratio else None


class TokenBatch:
    """The completions of `rows`, concatenated, with the model's predictions at each of their tokens."""

    def __init__(self, rows: Sequence[Row], predictions: Predictions | Tensor) -> None:
        """`predictions`, or whole distributions: log-softmax [N, V]."""
        self.rows = rows
        self.predictions = Dense(predictions) if isinstance(predictions, Tensor) else predictions

    @property
    def logprobs(self) -> Tensor:
        """All log-probs [N, V], for tests and small vocabularies. Objectives use `sampled` and `at_ids`."""
        return self.predictions.dense()

    @cached_property
    def sampled(self) -> Tensor:
        """Log-probs of the completions' own tokens [N]."""
        ids = torch.tensor([i for row in self.rows for i in row.completion_ids], device=self.predictions.device)
        return self.predictions.at_ids(ids[:, None]).squeeze(1)

    @cached_property
    def entropy(self) -> Tensor:
        """Exact entropies in nats at the completions' tokens [N], without gradient."""
        return self.predictions.entropy()

    @property
    def live_entropy(self) -> float:
        """Sum of the exact entropies (nats) at the live rows' tokens."""
        is_live = torch.cat([torch.full((row.n_tokens,), row.sample is not None) for row in self.rows])
        return float(self.entropy[is_live.to(self.entropy.device)].sum())

    def at_ids(self, ids: Tensor, index: Tensor | None = None) -> Tensor:
        """Log-probs [n, K] of `ids` [n, K] at the positions `index` [n] of the token axis (all by default)."""
        return self.predictions.at_ids(ids, index)

    def where(self, name: str) -> Tensor:
        """Positions on the token axis [n] of the rows that carry the stream `name`."""
        flags = [torch.full((row.n_tokens,), name in row.streams) for row in self.rows]
        return torch.cat(flags).nonzero().squeeze(1).to(self.predictions.device)

    def stream(self, name: str) -> Tensor:
        """The stream `name` of the rows that carry it [n, ...], on the axis of `where(name)`."""
        return self.at(name, name)

    def at(self, name: str, other: str) -> Tensor:
        """The stream `other` on the axis of `where(name)`; every row with `name` must carry `other` too."""
        return torch.cat([row.streams[other] for row in self.rows if name in row.streams]).to(self.predictions.device)


def pack(rows: Sequence[Tokens], budget: int) -> list[list[int]]:
    """Indices of `rows` in micro-batches of at most `budget` padded tokens each (one row may exceed it alone).

    Longest first, so that a batch's rows are of similar length. The same rows give the same order.
    """
    lengths = [len(row.prompt_ids) + len(row.completion_ids) for row in rows]
    batches: list[list[int]] = []
    for index in sorted(range(len(rows)), key=lambda i: (-lengths[i], i)):
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def count(rows: Iterable[Row], name: str) -> int:
    """Tokens of the rows that carry the stream `name`: the denominator of a term."""
    return sum(row.n_tokens for row in rows if name in row.streams)
