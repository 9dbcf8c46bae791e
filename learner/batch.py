"""Prepared: the rows of a step when all has been decided about them, and what they are, in numbers, before a gradient is taken."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from burnish.config import Learner
from burnish.measures import repetition
from learner import caps
from learner.caps import Voice
from learner.offpolicy import codes
from learner.right import RightReply
from learner.rows import Row
from learner.samples import Sample, SkipReason


@dataclass(frozen=True, slots=True)
class Prepared:
    """`used` are the rows that carry a term; the rest names samples by interaction id, as `StepResult` does."""

    used: list[Row]
    trained: tuple[str, ...]
    idle: tuple[str, ...]
    dropped: dict[str, str]
    weights: dict[str, float]
    facts: dict[str, float]


def finish(
    live: Sequence[Row],
    right: Sequence[RightReply],
    replayed: Sequence[Row],
    dropped: Mapping[str, SkipReason],
    facts: Mapping[str, float],
    settings: Learner,
) -> Prepared:
    """Weigh the stamped rows by who is behind them (`caps.py`), and count what became of all."""
    rows = _by_sample(live, right)
    samples = {row.sample.interaction_id: row.sample for row in live if row.sample is not None}
    bounds = {"user": settings.user_cap, "session": settings.session_cap, "coalition": settings.coalition_cap}
    names = list(rows)
    voices = [_voice(samples[name], rows[name], settings.known_after) for name in names]
    kept = caps.thin(voices, caps.weights(voices, **bounds))
    capped = [name for name, keep in zip(names, kept, strict=True) if not keep]
    for row in (row for name in capped for row in rows.pop(name)):
        row.streams.clear()
    found = caps.weights([voice for voice, keep in zip(voices, kept, strict=True) if keep], **bounds)
    weights = dict(zip(rows, found, strict=True))
    for name, weight in weights.items():
        for row in rows[name]:
            row.weight = weight
    reasons = {**dropped, **dict.fromkeys(capped, SkipReason.CAPPED)}
    idle = tuple(name for name in samples if name not in rows and name not in reasons)
    used = [row for row in (*live, *right, *replayed) if row.streams]
    reduced = {name: weight for name, weight in weights.items() if weight < 1.0}
    counts = {
        "n_trained": float(len(rows)),
        "n_idle": float(len(idle)),
        "n_capped": float(len(reduced) + len(capped)),
        "n_tokens": float(sum(row.n_tokens for row in used)),
    }
    return Prepared(used, tuple(rows), idle, {**reasons}, reduced, {**facts, **counts, **codes(reasons)})


def measured(samples: Sequence[Sample]) -> dict[str, float]:
    """What the replies of a step are like, whatever becomes of them: rewards, lengths, repetition, tool calls."""
    rewards = [sample.reward for sample in samples if sample.reward is not None]
    facts: dict[str, Any] = {"n_rows": len(samples), "n_hinted": sum(sample.hint is not None for sample in samples)}
    if rewards:
        facts |= {"reward_mean": statistics.fmean(rewards), "reward_std": statistics.pstdev(rewards)}
    if samples:
        facts["length"] = statistics.fmean(sample.n_tokens for sample in samples)
        facts["repetition"] = statistics.fmean(repetition(sample.completion_ids) for sample in samples)
    if n_calls := sum(sample.n_calls for sample in samples):
        facts |= {"n_calls": n_calls, "n_broken_calls": sum(sample.n_broken_calls for sample in samples)}
    return {name: float(value) for name, value in facts.items()}


def _by_sample(live: Sequence[Row], right: Sequence[RightReply]) -> dict[str, list[Row]]:
    """The rows with a term that each sample stands behind: its reply's, its right reply's, or both; in the samples' order."""
    found: dict[str, list[Row]] = {row.sample.interaction_id: [row] for row in live if row.sample is not None}
    for row in right:
        found[row.interaction_id].append(row)
    stamped = {name: [row for row in rows if row.streams] for name, rows in found.items()}
    return {name: rows for name, rows in stamped.items() if rows}


def _voice(sample: Sample, rows: Sequence[Row], known_after: int) -> Voice:
    user = (sample.tenant, sample.key_id, sample.user)
    is_new = sample.n_earlier is not None and sample.n_earlier < known_after
    return Voice(user, (user, sample.session) if sample.session else None, float(sum(row.n_tokens for row in rows)), is_new)
