"""Prepared: the rows of a step after all decisions about them and before a gradient is taken, with their metrics."""

import statistics
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnish.config import Recipe
from burnish.learner.data import caps
from burnish.learner.data.caps import Voice
from burnish.learner.data.right_replies import RightReply
from burnish.learner.data.rows import Row
from burnish.learner.data.samples import Sample, SkipReason
from burnish.learner.data.shadow_groups import Group
from burnish.learner.objectives.off_policy import codes
from burnish.records import who_of
from burnish.reply_metrics import repetition
from burnish.rewards import Level


@dataclass(frozen=True, slots=True)
class Prepared:
    """`used` are the rows that carry a term. The other fields name samples by interaction id, as `StepResult` does.

    `grouped` names the shadow groups that carry a term, `group_weights` those with a weight below 1 from a cap,
    `ungrouped` those that carry none, with the reason. `disputed` names the samples with contradicted hints, and
    `hint_share` is the share of the hints that is left (`learner/safety/hint_validation.py`). `heaviest` are the rows
    of the user with the most weighted tokens, none if there is only one user.
    """

    used: list[Row]
    trained: tuple[str, ...]
    idle: tuple[str, ...]
    dropped: dict[str, str]
    weights: dict[str, float]
    facts: dict[str, float]
    grouped: tuple[str, ...] = ()
    group_weights: dict[str, float] = field(default_factory=dict)
    ungrouped: dict[str, str] = field(default_factory=dict)
    disputed: Mapping[str, str] = field(default_factory=dict)
    hint_share: float = 1.0
    heaviest: tuple[Row, ...] = ()

    @property
    def has_work(self) -> bool:
        return bool(self.trained or self.grouped)


def finish(
    live: Sequence[Row],
    right: Sequence[RightReply],
    replayed: Sequence[Row],
    dropped: Mapping[str, SkipReason],
    facts: Mapping[str, float],
    recipe: Recipe,
    groups: Sequence[tuple[Group, Sequence[Row]]] = (),
) -> Prepared:
    """Weigh the stamped rows by the users behind them (`caps.py`), and count the outcome of all.

    Trust has degrees, and counts where users are capped (`caps.trusted`): explicit words before a judge's, proved and
    known users before new ones and bare keys. A shadow group is weighed and thinned out as a whole. It counts for the
    user of its live turn, and a good reply of an earlier step for its user.
    """
    rows = _by_sample(live, [row for row in right if row.earlier is None])
    again = {_AGAIN + row.interaction_id: row for row in right if row.earlier is not None and row.streams}
    rows |= {name: [row] for name, row in again.items()}
    whole = {_GROUP + group.interaction_id: (group, list(members)) for group, members in groups if members[0].streams}
    rows |= {name: members for name, (_, members) in whole.items()}
    samples = {row.sample.interaction_id: row.sample for row in live if row.sample is not None}
    bounds = {"user": recipe.user_cap, "session": recipe.session_cap, "new_users": recipe.new_users_cap}
    names = list(rows)

    def voice(name: str) -> Voice:
        if name in whole:
            return _group_voice(*whole[name], samples, recipe.known_after_turns)
        if name in again:
            return _voice_again(again[name])
        return _voice(samples[name], rows[name], recipe.known_after_turns)

    voices, trust = caps.trusted([voice(name) for name in names], user=recipe.user_cap)
    kept = caps.thin(voices, caps.weights(voices, **bounds))
    capped = [name for name, keep in zip(names, kept, strict=True) if not keep]
    for row in (row for name in capped for row in rows.pop(name)):
        row.streams.clear()
    found = caps.weights([voice for voice, keep in zip(voices, kept, strict=True) if keep], **bounds)
    by_caps = dict(zip(rows, found, strict=True))
    weights = {name: by_caps[name] * each for name, each in zip(names, trust, strict=True) if name in by_caps}
    for name, weight in weights.items():
        for row in rows[name]:
            row.weight = weight
    users = {name: each.user for name, each in zip(names, voices, strict=True) if name in rows}
    heaviest, token_share = _heaviest(rows, users)
    others = {*whole, *again}
    reasons = {**dropped, **dict.fromkeys((name for name in capped if name not in others), SkipReason.CAPPED)}
    idle = tuple(name for name in samples if name not in rows and name not in reasons)
    members = [row for _, each in groups for row in each]
    used = [row for row in (*live, *right, *members, *replayed) if row.streams]
    reduced = {name: weight for name, weight in weights.items() if weight < 1.0}
    trained = tuple(name for name in rows if name not in others)
    grouped = tuple(name.removeprefix(_GROUP) for name in rows if name in whole)
    ungrouped = {
        group.interaction_id: SkipReason.CAPPED if _GROUP + group.interaction_id in whole else "no spread"
        for group, _ in groups
        if group.interaction_id not in grouped
    }
    counts = {
        "n_trained": float(len(trained)),
        "n_idle": float(len(idle)),
        "n_capped": float(sum(weight < 1.0 for weight in by_caps.values()) + len(capped)),
        "n_tokens": float(sum(row.n_tokens for row in used)),
    }
    if groups:
        counts["n_groups"] = float(len(grouped))
    return Prepared(
        used,
        trained,
        idle,
        {**reasons},
        {name: weight for name, weight in reduced.items() if name not in others},
        {**facts, **counts, **token_share, **codes(reasons)},
        grouped,
        {name.removeprefix(_GROUP): weight for name, weight in reduced.items() if name in whole},
        ungrouped,
        heaviest=heaviest,
    )


def _heaviest(
    rows: Mapping[str, Sequence[Row]], users: Mapping[str, Hashable]
) -> tuple[tuple[Row, ...], dict[str, float]]:
    """The rows of the user with the most weighted tokens, and their share in those of all users. Nothing if there are
    fewer than two users.
    """
    sizes: Counter[Hashable] = Counter()
    for name, each in rows.items():
        sizes[users[name]] += sum(row.weight * row.n_tokens for row in each)  # type: ignore[assignment]
    if len(sizes) < 2:
        return (), {}
    user, size = max(sizes.items(), key=lambda item: item[1])
    found = tuple(row for name, each in rows.items() if users[name] == user for row in each)
    return found, {"heaviest/tokens": size / sizes.total()}


_BY_JUDGE = (Level.JUDGE, Level.IMPLICIT)
"""Sources of rewards that nobody gave explicitly."""
_AGAIN = "again "
"""Distinguishes a good reply of an earlier step."""
_GROUP = "group of "
"""Distinguishes a shadow group from the turn that it is named by, which may be in the same step."""


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
    """The rows with a term that belong to each sample: its reply's, its right reply's, or both, in the samples'
    order."""
    found: dict[str, list[Row]] = {row.sample.interaction_id: [row] for row in live if row.sample is not None}
    for row in right:
        found[row.interaction_id].append(row)
    stamped = {name: [row for row in rows if row.streams] for name, rows in found.items()}
    return {name: rows for name, rows in stamped.items() if rows}


def _voice(sample: Sample, rows: Sequence[Row], known_after_turns: int) -> Voice:
    user = sample.who
    is_new = sample.n_earlier is not None and sample.n_earlier < known_after_turns
    is_explicit = sample.reward_source not in _BY_JUDGE or sample.demonstration_ids is not None
    session = (user, sample.session) if sample.session else None
    return Voice(user, session, _n_tokens(rows), is_new, _is_proved(user), is_explicit)


def _voice_again(row: RightReply) -> Voice:
    assert row.earlier is not None
    return Voice(row.earlier.user, None, float(row.n_tokens), False, _is_proved(row.earlier.user))


def _group_voice(group: Group, rows: Sequence[Row], samples: Mapping[str, Sample], known_after_turns: int) -> Voice:
    """The voice of the user of the group's live turn. It is new if a row of the same user in this step is."""
    user = who_of(group.tenant, group.key_id, group.user)
    is_new = any(
        sample.n_earlier is not None and sample.n_earlier < known_after_turns
        for sample in samples.values()
        if sample.who == user
    )
    return Voice(user, (user, group.session), _n_tokens(rows), is_new, _is_proved(user))


def _n_tokens(rows: Sequence[Row]) -> float:
    return float(sum(row.n_tokens for row in rows))


def _is_proved(who: Hashable) -> bool:
    """True for a proved user of `who_of`, False for a key."""
    return isinstance(who, tuple) and who[1] == "user"
