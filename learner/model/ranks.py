"""Ranks: several processes that take one step together, under torchrun. By default one process alone.

Every rank gets the same rows and holds the same weights. Each computes its share of the micro-batches. Guarantees: the
sums of gradients and metrics over ranks equal those of one rank alone (up to rounding), and are the same bits on all.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from burnish.learner.data.rows import Tokens

T = TypeVar("T")


class Ranks:
    """This process is number `rank` of `size`."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        # Days may pass between two steps, and a GPU must not spin meanwhile. So waiting uses a separate group on the
        # CPU.
        self._idle = (
            dist.new_group(backend="gloo", timeout=timedelta(days=3650)) if size > 1 and dist.is_initialized() else None
        )

    @classmethod
    def from_environment(cls, device: str) -> "Ranks":
        """The ranks from torchrun's variables. Joins the others (gloo on a CPU, NCCL on GPUs, one per local rank)."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls()
        if device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        if not dist.is_initialized():
            dist.init_process_group("nccl" if device == "cuda" else "gloo")
        return cls(dist.get_rank(), size)

    def send(self, order: object) -> None:
        """Send `order` from the first rank to all others. None ends them. Returns at once if there are no others."""
        if self.size > 1:
            dist.broadcast_object_list([order], src=0, group=self._idle)

    def receive(self) -> Any:
        """On the other ranks: wait, however long, for the first rank's next order."""
        orders: list[Any] = [None]
        dist.broadcast_object_list(orders, src=0, group=self._idle)
        return orders[0]

    def budget(self, rows: Sequence[Tokens], budget: int) -> int:
        """`budget` tokens for a micro-batch, or fewer if otherwise some ranks would get none."""
        return budget if self.size == 1 else min(budget, max(1, -(-sum(map(_length, rows)) // self.size)))

    def share(self, batches: Sequence[list[int]], rows: Sequence[Tokens]) -> list[list[int]]:
        """This rank's part of `batches` (indices of `rows`): the longest first, each to the rank with the least so
        far."""
        if self.size == 1:
            return list(batches)
        n_tokens = [sum(_length(rows[i]) for i in batch) for batch in batches]
        loads, mine = [0] * self.size, []
        for at in sorted(range(len(batches)), key=lambda at: (-n_tokens[at], at)):
            lightest = min(range(self.size), key=lambda rank: (loads[rank], rank))
            loads[lightest] += n_tokens[at]
            if lightest == self.rank:
                mine.append(batches[at])
        return mine

    def merged(self, found: Mapping[int, T]) -> list[T]:
        """The results of all ranks, by index."""
        parts: list[Any] = [found]
        if self.size > 1:
            parts = [None] * self.size
            dist.all_gather_object(parts, dict(found))
        whole = {i: value for part in parts for i, value in part.items()}
        return [whole[i] for i in range(len(whole))]

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Make each parameter's gradient the sum over ranks, in one exchange. A missing gradient counts as zero."""
        if self.size == 1:
            return
        held = list(parameters)
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in held])
        dist.all_reduce(flat)
        for parameter, part in zip(held, torch.split(flat, [p.numel() for p in held]), strict=True):
            parameter.grad = part.view_as(parameter).clone()

    def add(self, sums: Mapping[str, float]) -> dict[str, float]:
        """`sums` added up over ranks. A name that only some ranks have counts too."""
        if self.size == 1:
            return dict(sums)
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, dict(sums))
        names = list(dict.fromkeys(name for part in parts for name in part))
        return {name: sum(part.get(name, 0.0) for part in parts) for name in names}


def _length(row: Tokens) -> int:
    return len(row.prompt_ids) + len(row.completion_ids)
