"""Influence: how much of a step's gradient is the heaviest user's, and where the step would go without that user.

The gradient is a sum over rows, so leaving rows out is a subtraction: with g the step's gradient, u the user's part of
it and r = g − u the rest, the user's share is ⟨u, g⟩ / |g|², and the cosine between r and g says whether the others
pull the same way. It is exact for the gradient and costs no pass: the user's rows come first, and their gradient is
kept aside. Optimiser moments, which mix in earlier steps, are left out.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from burnish.learner.model.ranks import Ranks


class Gradients:
    """The gradients of a step in one or two parts: `take` after each, then `give_back`."""

    def __init__(self, parameters: Iterable[Tensor], ranks: Ranks) -> None:
        self._parameters = list(parameters)
        self._ranks = ranks
        self._parts: list[list[Tensor | None]] = []

    def take(self) -> None:
        """Sum the gradients over ranks, keep them aside, and begin anew."""
        self._ranks.add_gradients(self._parameters)
        self._parts.append([parameter.grad for parameter in self._parameters])
        for parameter in self._parameters:
            parameter.grad = None

    def give_back(self) -> None:
        """Make each gradient the sum of its parts. One that no part has stays absent."""
        for parameter, *parts in zip(self._parameters, *self._parts, strict=True):
            found = [part for part in parts if part is not None]
            parameter.grad = None if not found else found[0] if len(found) == 1 else found[0] + found[1]

    def influence(self) -> dict[str, float]:
        """`heaviest/gradient` is the first part's share, `heaviest/cosine` that between the rest and the whole."""
        first, rest = self._parts
        whole = [parameter.grad for parameter in self._parameters]
        size, left = _dot(whole, whole), _dot(rest, rest)
        return {
            "heaviest/gradient": _dot(first, whole) / size if size else 0.0,
            "heaviest/cosine": _dot(rest, whole) / (size * left) ** 0.5 if size and left else 0.0,
        }


def _dot(one: Iterable[Tensor | None], other: Iterable[Tensor | None]) -> float:
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    products = [torch.dot(a.flatten(), b.flatten()) for a, b in pairs]
    return float(torch.stack(products).double().sum()) if products else 0.0
