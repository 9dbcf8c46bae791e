"""Rows: turns of agents' sessions in random tokens. A turn's prompt begins with everything that was said before it."""

import random
from collections.abc import Sequence
from typing import Any

from benchmarks.gpu.shapes import Shape

N_ROWS = 16
HINTED = 4
"""Every fourth row has a hint."""


def agent_rows(shape: Shape, seed: int = 0) -> list[dict[str, Any]]:
    """`N_ROWS` rows, each with a reward, its advantage, its session and perhaps prompts with a hint.

    A session goes on until its prompt would be too long. Then the next one begins.
    """
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    session, said = 0, list[int]()

    def draw(low: int, high: int) -> list[int]:
        return [rng.randrange(1, shape.n_vocab) for _ in range(rng.randint(low, high))]

    while len(rows) < N_ROWS:
        if not said or len(said) > shape.prompts[1]:
            session, said = session + 1, draw(shape.prompts[0], 2 * shape.prompts[0])
        reply = draw(*shape.completions)
        reward = rng.choice((1.0, -1.0))
        row = {"prompt_ids": list(said), "completion_ids": reply, "reward": reward, "advantage": reward / 2}
        row |= {"session": f"s{session}", "hinted_prompt_ids": None, "control_prompt_ids": None}
        if len(rows) % HINTED == 0:
            hint, neutral = draw(16, 16), draw(16, 16)
            row |= {"hinted_prompt_ids": [*said, *hint], "control_prompt_ids": [*said, *neutral]}
        rows.append(row)
        said = [*said, *reply, *draw(shape.completions[0] // 8, shape.completions[0] // 2)]
    return rows


def facts(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The rows' numbers and lengths."""
    prompts, completions = ([len(row[key]) for row in rows] for key in ("prompt_ids", "completion_ids"))
    return {
        "n_rows": len(rows),
        "n_sessions": len({row["session"] for row in rows}),
        "n_row_tokens": sum(prompts) + sum(completions),
        "n_completion_tokens": sum(completions),
        "longest_prompt": max(prompts),
    }


def step_flops(shape: Shape, rows: Sequence[dict[str, Any]]) -> float:
    """The FLOPs of a step that scores each row once and trains on it once, alone and without padding."""
    total = 0.0
    for row in rows:
        n = len(row["prompt_ids"]) + len(row["completion_ids"]) - 1  # the last token is not fed
        sizes = (n, len(row["completion_ids"]), n * (n + 1) // 2)
        total += sum(shape.flops(*sizes, with_gradient=with_gradient) for with_gradient in (False, True))
    return total
