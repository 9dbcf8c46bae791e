"""The drawing of one group: G − 1 requests side by side. They are taken back as soon as somebody else wants the
engine."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from burnish.errors import BurnishError
from burnish.journal.shadows import Drawn
from burnish.records import IntArray
from burnish.server.rollout.shadow_groups.engine_source import Source

LOOK = 0.25
"""Seconds between two looks at the engine while it draws. Each look costs it a page of metrics."""


class Interrupted(BurnishError):
    """Somebody else wants the engine. The replies drawn so far are thrown away."""


class Unfit(BurnishError):
    """The replies cannot form a group, now or later. The reason before the colon is counted."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of the live reply and its sampling. `model` is the engine's name for its version."""

    model: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]]
    temperature: float
    prompt_ids: IntArray
    last_id: int
    """The token that ended the live reply."""


async def draw(
    source: Source, prompt: Prompt, n: int, max_tokens: int, may_go_on: Callable[[int], bool], look: float = LOOK
) -> list[Drawn]:
    """`n` replies to `prompt`. `may_go_on` gets the number of others' requests in the engine, before and during
    drawing.

    Raises Interrupted, Unfit, and the errors of `source`. In every case no request of ours is left behind.
    """
    if not may_go_on(await source.n_requests()):
        raise Interrupted("the engine is not idle")
    asked = (prompt.model, prompt.messages, prompt.tools, prompt.temperature, max_tokens)
    running = {asyncio.create_task(source.draw(*asked)): place for place in range(n)}
    pending, n_ours = set(running), n
    try:
        while pending:
            done, pending = await asyncio.wait(pending, timeout=look, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            # The engine may still count a request with a finished reply, so ours are as many as at the look before.
            if pending and not may_go_on(max(0, await source.n_requests() - n_ours)):
                raise Interrupted("somebody else wants the engine")
            n_ours = len(pending)
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    drawn = [task.result() for task in running]
    for ids, each in drawn:
        _check(prompt, ids, each)
    return [each for _, each in drawn]


def _check(prompt: Prompt, prompt_ids: IntArray, drawn: Drawn) -> None:
    """Raises Unfit if a reply cannot stand beside the live one."""
    if prompt_ids != prompt.prompt_ids:
        raise Unfit(f"another prompt: {len(prompt_ids)} tokens in the place of {len(prompt.prompt_ids)}, or others")
    if drawn.finish_reason == "length":
        raise Unfit(f"cut off: a reply had not ended after {len(drawn.token_ids)} tokens")
    if drawn.reply.get("tool_calls") or drawn.finish_reason == "tool_calls":
        raise Unfit("a tool call: what it would have led to is not known, for no tool is run for a shadow")
    if drawn.finish_reason != "stop":
        raise Unfit(f"no end: the engine says {drawn.finish_reason!r}")
    if drawn.token_ids[-1] != prompt.last_id:
        raise Unfit("another end: the live reply ended otherwise than by the model's own end, as by a stop string")
