"""Probe: log-probs by which the engine shows that it serves exactly this version.

Chosen where candidate and base differ most by the learner's own reckoning, so that an engine that serves the base, the
parent or a stale adapter cannot pass by luck. The engine is asked for `prompt_logprobs` of prompt + completion at
temperature 1 (those are never tempered), and compared position by position.

JSON: {"schema": 1, "temperature": 1.0,
       "rows": [{"prompt_ids": [int], "completion_ids": [int]}],                       at most 4, each ≤ 512 tokens
       "positions": [{"row": int, "index": int, "candidate": float, "parent": float, "base": float}],  at most 64
       "gap_base": float, "gap_parent": float}                         largest |candidate − …| over the positions
`index` counts completion tokens: its place among prompt + completion ids is len(prompt_ids) + index.
"""

from collections.abc import Sequence
from typing import Any

from learner.policy import Policy, Weights
from learner.rows import Text, Tokens

MAX_ROWS, MAX_TOKENS, MAX_POSITIONS, MAX_CANDIDATES = 4, 512, 64, 16


def build_probe(policy: Policy, recent: Sequence[Tokens], parent: Weights = Weights.TEACHER) -> dict[str, Any]:
    """The probe of the current adapter on the last of `recent`; `parent` says which weights it was trained from."""
    rows = [_fitted(row) for row in recent[-MAX_CANDIDATES:]]
    if not rows:
        return _as_json([], [])
    candidate, base = policy.logprobs(rows), policy.logprobs(rows, Weights.BASE)
    changes = [(a - b).abs() for a, b in zip(candidate, base, strict=True)]
    chosen = sorted(range(len(rows)), key=lambda i: (-float(changes[i].max()), i))[:MAX_ROWS]
    before = dict(zip(chosen, policy.logprobs([rows[i] for i in chosen], parent), strict=True))
    places = sorted((-float(changes[i][t]), at, t) for at, i in enumerate(chosen) for t in range(len(rows[i].completion_ids)))[
        :MAX_POSITIONS
    ]
    positions = [
        {
            "row": at,
            "index": t,
            "candidate": float(candidate[chosen[at]][t]),
            "parent": float(before[chosen[at]][t]),
            "base": float(base[chosen[at]][t]),
        }
        for _, at, t in places
    ]
    return _as_json([rows[i] for i in chosen], positions)


def _fitted(row: Tokens) -> Text:
    """The row at temperature 1 within the token limit; a probe need not be a whole conversation."""
    completion = list(row.completion_ids)[: MAX_TOKENS // 2]
    return Text(list(row.prompt_ids)[-(MAX_TOKENS - len(completion)) :], completion)


def _as_json(rows: Sequence[Text], positions: list[dict[str, Any]]) -> dict[str, Any]:
    def gap(other: str) -> float:
        return max((abs(place["candidate"] - place[other]) for place in positions), default=0.0)

    return {
        "schema": 1,
        "temperature": 1.0,
        "rows": [{"prompt_ids": list(row.prompt_ids), "completion_ids": list(row.completion_ids)} for row in rows],
        "positions": positions,
        "gap_base": gap("base"),
        "gap_parent": gap("parent"),
    }
