"""Probe: log-probs that show whether the engine serves exactly this version.

Its places are those where the learner's candidate and base differ most, among tokens that the candidate finds likely.
The engine is asked for its likeliest next tokens after each place, the same way that it answers any client. (vLLM's
`prompt_logprobs` would score whole texts at once, but beside other requests it kills an engine with LoRA; see
docs/decisions/0003-probe-by-next-token-log-probs.md.)

JSON:

- `schema`: 2; `temperature`: 1.0
- `rows`: at most 4 of {"prompt_ids": [int], "completion_ids": [int]}, each ≤ 512 tokens
- `positions`: at most 24 of {"row": int, "index": int, "token_id": int, "candidate": float, "parent": float, "base":
  float}
- `gap_base`, `gap_parent`: largest |candidate − …| over the positions

A position asks for `token_id` after the prompt and the first `index` completion tokens. The positions of the largest
change come first, because a trial asks only for the first few.
"""

from collections.abc import Sequence
from typing import Any

import torch

from burnish.learner.data.rows import Text, Tokens
from burnish.learner.model.policy import Policy, Weights

MAX_ROWS, MAX_TOKENS, MAX_POSITIONS = 4, 512, 24
N_LIKELY = 8
"""Candidate tokens per place: well within the 20 that vLLM returns."""
LEAST_LIKELY = -5.0
"""Nats. A less likely token's log-prob is so small that rounding in half precision changes it by as much as an adapter
does.
"""


def build_probe(policy: Policy, recent: Sequence[Tokens], parent: Weights = Weights.TEACHER) -> dict[str, Any]:
    """The probe of the current adapter on the last of `recent`. `parent` names the weights that it was trained from."""
    rows = [_fitted(row) for row in recent[-MAX_ROWS:]]
    if not rows:
        return _as_json([], [])
    likely, candidate = map(list, zip(*policy.likeliest(rows, N_LIKELY), strict=True))
    base = policy.logprobs_at(rows, likely, Weights.BASE)
    changes = [(a - b).abs().where(a >= LEAST_LIKELY, 0.0) for a, b in zip(candidate, base, strict=True)]
    before = policy.logprobs_at(rows, likely, parent)
    places: list[tuple[float, int, int, int]] = []
    for i, change in enumerate(changes):
        largest, column = torch.max(change, dim=1)
        places += [(-float(largest[t]), i, t, int(column[t])) for t in range(len(rows[i].completion_ids))]
    positions = [
        {
            "row": i,
            "index": t,
            "token_id": int(likely[i][t, k]),
            "candidate": float(candidate[i][t, k]),
            "parent": float(before[i][t, k]),
            "base": float(base[i][t, k]),
        }
        for _, i, t, k in sorted(places)[:MAX_POSITIONS]
    ]
    return _as_json(rows, positions)


def _fitted(row: Tokens) -> Text:
    """The row at temperature 1 within the token limit. A probe need not be a whole conversation."""
    completion = list(row.completion_ids)[: MAX_TOKENS // 2]
    return Text(list(row.prompt_ids)[-(MAX_TOKENS - len(completion)) :], completion)


def _as_json(rows: Sequence[Text], positions: list[dict[str, Any]]) -> dict[str, Any]:
    def gap(other: str) -> float:
        return max((abs(place["candidate"] - place[other]) for place in positions), default=0.0)

    return {
        "schema": 2,
        "temperature": 1.0,
        "rows": [{"prompt_ids": list(row.prompt_ids), "completion_ids": list(row.completion_ids)} for row in rows],
        "positions": positions,
        "gap_base": gap("base"),
        "gap_parent": gap("parent"),
    }
