"""Predictions of the next token at N places, made from hidden states (no [N, V]) or from whole distributions."""

from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor

from burnish.learner.model import head


class Predictions(ABC):
    """Next-token distributions at N places. `n_vocab` is V."""

    n_vocab: int

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @abstractmethod
    def at_ids(self, ids: Tensor, index: Tensor | None = None) -> Tensor:
        """Log-probs [n, K] of `ids` [n, K] at the places `index` [n] (all by default), with gradient if it is
        enabled."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Exact entropies in nats [N], without gradient."""

    @abstractmethod
    def top(self, k: int) -> Tensor:
        """The k likeliest ids, likeliest first [N, k]."""

    @abstractmethod
    def dense(self) -> Tensor:
        """All log-probs [N, V], with gradient, for tests and small vocabularies."""

    @abstractmethod
    def kept(self, index: Tensor) -> Self:
        """The predictions at the places `index` [n], without the graph that made them. What was computed stays."""

    @abstractmethod
    def kl_to(self, other: Self) -> Tensor:
        """KL(self ‖ other) in nats at each place [N], over the whole vocabulary, without gradient.

        `other` has the same places.
        """


class Projected(Predictions):
    """From `hidden` [N, H] and a frozen head `weight` [V, H]: one pass over the vocabulary, run when first needed."""

    def __init__(self, hidden: Tensor, weight: Tensor) -> None:
        self.hidden, self.weight = hidden, weight
        self.n_vocab = len(weight)
        self._found: head.Scan | None = None

    @property
    def device(self) -> torch.device:
        return self.hidden.device

    def at_ids(self, ids: Tensor, index: Tensor | None = None) -> Tensor:
        found, hidden = self._scan(), self.hidden
        if index is not None:
            found, hidden = found.at(index), hidden[index]
        return head.logprobs_at(hidden, self.weight, found, ids)

    def entropy(self) -> Tensor:
        found = self._scan(expected=True)
        assert found.expected is not None
        mean_logit = (head.wide(self.hidden.detach()) * found.expected).sum(-1)
        return (found.log_z - mean_logit).clamp_(min=0.0)

    def top(self, k: int) -> Tensor:
        found = self._scan(top=min(k, self.n_vocab))
        assert found.top is not None
        return found.top[:, :k]

    def dense(self) -> Tensor:
        logits = head.wide(self.hidden @ self.weight.detach().T)
        return torch.log_softmax(logits, -1)

    def kept(self, index: Tensor) -> "Projected":
        kept = Projected(self.hidden.detach()[index], self.weight)
        kept._found = None if self._found is None else self._found.at(index)
        return kept

    def kl_to(self, other: Self) -> Tensor:
        """E_p[log p − log q] = (h_p − h_q)·E_p[w] − log Z_p + log Z_q: no [N, V] tensor is made."""
        mine, theirs = self._scan(expected=True), other._scan()
        assert mine.expected is not None
        moved = head.wide(self.hidden.detach()) - head.wide(other.hidden.detach())
        return ((moved * mine.expected).sum(-1) - mine.log_z + theirs.log_z).clamp_(min=0.0)

    def _scan(self, *, expected: bool = False, top: int = 0) -> head.Scan:
        expected = expected or (self.hidden.requires_grad and torch.is_grad_enabled())
        found = self._found
        has_top = not top or (found is not None and found.top is not None and found.top.shape[1] >= top)
        if found is None or not has_top or (expected and found.expected is None):
            found = head.scan(self.hidden, self.weight, expected=expected, top=top)
            self._found = found
        return found


class Dense(Predictions):
    """From whole distributions `logprobs` [N, V]."""

    def __init__(self, logprobs: Tensor) -> None:
        self.logprobs = logprobs
        self.n_vocab = logprobs.shape[1]

    @property
    def device(self) -> torch.device:
        return self.logprobs.device

    def at_ids(self, ids: Tensor, index: Tensor | None = None) -> Tensor:
        return (self.logprobs if index is None else self.logprobs[index]).gather(1, ids)

    def entropy(self) -> Tensor:
        logprobs = self.logprobs.detach()
        return -(logprobs.exp() * logprobs.clamp(min=-1e4)).sum(-1)

    def top(self, k: int) -> Tensor:
        return self.logprobs.topk(min(k, self.n_vocab), -1).indices

    def dense(self) -> Tensor:
        return self.logprobs

    def kept(self, index: Tensor) -> "Dense":
        return Dense(self.logprobs.detach()[index])

    def kl_to(self, other: Self) -> Tensor:
        mine = self.logprobs.detach()
        return (mine.exp() * (mine - other.logprobs.detach()).clamp(min=-1e4, max=1e4)).sum(-1)
