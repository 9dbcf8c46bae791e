"""Layout: rows concatenated on one token axis, without padding. A beginning that several rows share is there once.

Rows are put in the order of their ids, so that each shares its longest known beginning with the row before it. A row's
own tokens are one segment. Its queries attend to the shared beginning, wherever it lies, and causally to themselves.
Attention runs per segment (`attend`), everything else over all tokens at once. Gradients of shared tokens add up. On a
GPU one kernel takes all segments.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from burnish.learner.data.rows import Tokens

NAME = "burnish_packed"
MIN_SHARED = 16
"""Shorter common beginnings are computed again, because each shared segment needs a gather and a mask per layer."""
N_LITTLE = 2**16
"""Most pairs of a query and a key in a segment for which attention is written out on a CPU."""
_HALF = (torch.bfloat16, torch.float16)
_GROUPED: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in signature(varlen_attn).parameters else {}
"""From torch 2.12 on, fewer heads of keys than of queries must be asked for."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens `start`:`end` of the axis. `path` are all places that the last of them attends to, itself included, in
    order.
    """

    start: int
    end: int
    path: Tensor
    has_prefix: bool


@dataclass(frozen=True, slots=True)
class Bounds:
    """The segments as one kernel takes them: where the queries and the paths of each begin and end [S + 1], the longest
    of both, and all paths as one index of places. The index is None if no segment has a prefix.
    """

    queries: Tensor
    paths: Tensor
    longest_query: int
    longest_path: int
    places: Tensor | None

    @classmethod
    def of(cls, segments: Sequence[Segment], device: torch.device) -> "Bounds":
        """The bounds of at least one segment."""
        queries, paths = [0], [0]
        for segment in segments:
            queries.append(segment.end)
            paths.append(paths[-1] + len(segment.path))
        return cls(
            torch.tensor(queries, dtype=torch.int32, device=device),
            torch.tensor(paths, dtype=torch.int32, device=device),
            max(segment.end - segment.start for segment in segments),
            max(len(segment.path) for segment in segments),
            torch.cat([s.path for s in segments]) if any(s.has_prefix for s in segments) else None,
        )


@dataclass(frozen=True, slots=True)
class Layout:
    """`ids` and `positions` [T]. `targets` [N]: the places that predict the rows' completions, in the rows' order.

    `masks` are those of `mask` so far: all layers need the same few. On a CPU, attention is written out for segments
    with at most `n_little` pairs of a query and a key. On a GPU that has the kernel, `bounds` are the segments'.
    """

    ids: Tensor
    positions: Tensor
    segments: tuple[Segment, ...]
    targets: Tensor
    n_little: int = 0
    bounds: Bounds | None = None
    masks: dict[tuple[int, int, int | None], Tensor] = field(default_factory=dict)

    def mask(self, n: int, m: int, window: int | None) -> Tensor:
        """Which of m keys each of the last n places may attend to [n, m]."""
        key = n, m, window
        if key not in self.masks:
            self.masks[key] = _mask(n, m, window, self.ids.device)
        return self.masks[key]

    @classmethod
    def of(cls, rows: Sequence[Tokens], device: torch.device, n_little: int = N_LITTLE) -> "Layout":
        """The last token of a row is not fed, because it predicts nothing."""
        fed = [_fed(row) for row in rows]
        ids: list[int] = []
        positions: list[int] = []
        segments: list[Segment] = []
        paths: dict[int, list[int]] = {}
        before: int | None = None
        for i in sorted(range(len(rows)), key=lambda i: fed[i]):
            n_shared = _n_shared(fed[before], fed[i]) if before is not None else 0
            shared = paths[before][:n_shared] if before is not None else []
            start, new = len(ids), fed[i][n_shared:]
            paths[i] = shared + list(range(start, start + len(new)))
            ids += new
            positions += range(n_shared, len(fed[i]))
            if new:
                path = torch.tensor(paths[i], device=device)
                segments.append(Segment(start, start + len(new), path, n_shared > 0))
            before = i
        targets = [place for i, row in enumerate(rows) for place in paths[i][len(row.prompt_ids) - 1 :]]
        return cls(
            torch.tensor(ids, device=device),
            torch.tensor(positions, device=device),
            tuple(segments),
            torch.tensor(targets, device=device),
            n_little,
            Bounds.of(segments, device) if _has_kernel(device) else None,
        )


def fill(rows: Sequence[Tokens], budget: int) -> list[list[int]]:
    """Indices of `rows` in micro-batches of at most `budget` tokens each, shared beginnings counted once (one row may
    exceed it alone). They are in the order of their ids, so that rows that share a beginning meet. The same rows give
    the same batches.
    """
    fed = [_fed(row) for row in rows]
    batches: list[list[int]] = []
    n_tokens = 0
    for i in sorted(range(len(rows)), key=lambda i: (fed[i], i)):
        n_new = len(fed[i]) - (_n_shared(fed[batches[-1][-1]], fed[i]) if batches else 0)
        if batches and n_tokens + n_new <= budget:
            batches[-1].append(i)
            n_tokens += n_new
        else:
            batches.append([i])
            n_tokens = len(fed[i])
    return batches


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packed: Layout | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface over a `Layout`: [1, heads, T, d] -> [1, T, heads, d]. Without one, its own
    SDPA.
    """
    if packed is None:
        windowed = {"scaling": scaling, "sliding_window": sliding_window}
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **windowed, **more
        )
        return found
    if packed.bounds is not None and query.dtype in _HALF and query.shape[3] <= 256 and query.shape[3] % 8 == 0:
        return _attend_at_once(query, key, value, packed.bounds, scaling, sliding_window), None
    is_grouped = query.shape[1] != key.shape[1]
    parts = []
    for segment in packed.segments:
        q = query[:, :, segment.start : segment.end]
        if segment.has_prefix:
            k, v = key.index_select(2, segment.path), value.index_select(2, segment.path)
        else:
            k, v = key[:, :, segment.start : segment.end], value[:, :, segment.start : segment.end]
        n, m = q.shape[2], k.shape[2]
        is_cut = sliding_window is not None and m > sliding_window
        window = sliding_window if is_cut else None
        if q.device.type == "cpu" and q.dtype == torch.bfloat16 and n * m <= packed.n_little:
            parts.append(_attend_little(q, k, v, packed.mask(n, m, window), scaling))
            continue
        mask = packed.mask(n, m, window) if segment.has_prefix or is_cut else None
        parts.append(
            torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None and n > 1, scale=scaling, enable_gqa=is_grouped
            )
        )
    return torch.cat(parts, 2).transpose(1, 2).contiguous(), None


def _attend_at_once(
    query: Tensor, key: Tensor, value: Tensor, bounds: Bounds, scaling: float | None, window: int | None
) -> Tensor:
    """FlashAttention over all segments in one call, [1, heads, T, d] -> [1, T, heads, d]."""
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    if bounds.places is not None:
        k, v = k.index_select(0, bounds.places), v.index_select(0, bounds.places)
    found = varlen_attn(
        q.contiguous(),
        k.contiguous(),
        v.contiguous(),
        bounds.queries,
        bounds.paths,
        bounds.longest_query,
        bounds.longest_path,
        scale=scaling,
        window_size=(-1 if window is None else window - 1, 0),  # the last query attends to the last key
        **_GROUPED,
    )
    assert isinstance(found, Tensor)  # no further result was asked for
    return found[None]


def _has_kernel(device: torch.device) -> bool:
    """FlashAttention needs compute capability 8.0."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def _attend_little(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None) -> Tensor:
    """SDPA written out, [1, heads, n, d] and [1, key heads, m, d] -> [1, heads, n, d]. The softmax is in float32.

    On a CPU, torch's bf16 kernel takes two to three times as long for segments of this size, mostly in backward.
    """
    n_heads, n, size = query.shape[1:]
    n_key_heads, m = key.shape[1:3]
    scale = size**-0.5 if scaling is None else scaling
    scores = torch.bmm(query.reshape(n_key_heads, -1, size), key[0].transpose(1, 2)).float() * scale
    masked = scores.view(n_key_heads, -1, n, m).masked_fill(~mask, -torch.inf)
    weights = torch.softmax(masked, -1).to(value.dtype).view(n_key_heads, -1, m)
    return torch.bmm(weights, value[0]).view(1, n_heads, n, size)


def _mask(n: int, m: int, window: int | None, device: torch.device) -> Tensor:
    distance = torch.arange(m - n, m, device=device)[:, None] - torch.arange(m, device=device)
    return (distance >= 0) if window is None else (distance >= 0) & (distance < window)


def _fed(row: Tokens) -> list[int]:
    return [*row.prompt_ids, *row.completion_ids][:-1]


def _n_shared(one: list[int], two: list[int]) -> int:
    """Length of the common beginning, 0 if it is not worth sharing."""
    n = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    return n if n >= MIN_SHARED else 0


@contextmanager
def without_mask() -> Iterator[None]:
    """No mask is made inside the block. A [T, T] mask would hold what the layout holds, at T² the memory."""
    token = _is_unmasked.set(True)
    try:
        yield
    finally:
        _is_unmasked.reset(token)


def _masked(*args: Any, **kwargs: Any) -> Tensor | None:
    return None if _is_unmasked.get() else sdpa_mask(*args, **kwargs)


_is_unmasked: ContextVar[bool] = ContextVar("is_unmasked", default=False)
AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, _masked)
