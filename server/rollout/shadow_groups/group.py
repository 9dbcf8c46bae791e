"""The drawing of groups: G − 1 requests for each, all side by side. They are taken back as soon as somebody else wants
the engine.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from burnish.errors import BurnishError, EngineError, EngineUnavailable
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
    last_id: int | None
    """The token that ended the live reply. None if its length does not matter: then replies may be cut off."""


@dataclass(frozen=True, slots=True)
class Order:
    """`n` replies to `prompt`, each of at most `max_tokens` tokens."""

    prompt: Prompt
    n: int
    max_tokens: int


async def draw(
    source: Source, orders: Sequence[Order], may_go_on: Callable[[int], bool], look: float = LOOK
) -> list[list[Drawn] | EngineError | Unfit]:
    """The replies of each order, or why it has none. All are drawn side by side, because an engine answers many
    requests in little more time than one.

    `may_go_on` gets the number of others' requests in the engine, before and during drawing. Raises Interrupted, and
    EngineUnavailable. In every case no request of ours is left behind.
    """
    if not may_go_on(await source.n_requests()):
        raise Interrupted("the engine is not idle")
    running = [[asyncio.create_task(_ask(source, order)) for _ in range(order.n)] for order in orders]
    pending = {task for tasks in running for task in tasks}
    n_ours = len(pending)
    try:
        while pending:
            pending = (await asyncio.wait(pending, timeout=look))[1]
            for tasks in running:
                if any(_failure(task) is not None for task in tasks):
                    for task in tasks:
                        task.cancel()
            # The engine may still count a request with a finished reply, so ours are as many as at the look before.
            if pending and not may_go_on(max(0, await source.n_requests() - n_ours)):
                raise Interrupted("somebody else wants the engine")
            n_ours = len(pending)
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    return [_whole(tasks) for tasks in running]


async def _ask(source: Source, order: Order) -> Drawn:
    prompt = order.prompt
    asked = (prompt.model, prompt.messages, prompt.tools, prompt.temperature, order.max_tokens)
    ids, drawn = await source.draw(*asked)
    _check(prompt, ids, drawn)
    return drawn


def _failure(task: "asyncio.Task[Drawn]") -> BaseException | None:
    """Why the reply of a task that has ended failed. Raises EngineUnavailable if that was the reason."""
    if not task.done() or task.cancelled():
        return None
    error = task.exception()
    if error is not None and not isinstance(error, EngineError | Unfit):
        raise error
    if isinstance(error, EngineUnavailable):
        raise error
    return error


def _whole(tasks: Sequence["asyncio.Task[Drawn]"]) -> list[Drawn] | EngineError | Unfit:
    """The replies of a group. If one failed, its error."""
    for task in tasks:
        error = _failure(task)
        if isinstance(error, EngineError | Unfit):
            return error
    return [task.result() for task in tasks]


def _check(prompt: Prompt, prompt_ids: IntArray, drawn: Drawn) -> None:
    """Raises Unfit if a reply cannot stand beside the live one."""
    if prompt_ids != prompt.prompt_ids:
        raise Unfit(f"another prompt: {len(prompt_ids)} tokens in the place of {len(prompt.prompt_ids)}, or others")
    if drawn.reply.get("tool_calls") or drawn.finish_reason == "tool_calls":
        raise Unfit("a tool call: what it would have led to is not known, for no tool is run for a shadow")
    if drawn.finish_reason == "length" and prompt.last_id is None:
        return
    if drawn.finish_reason == "length":
        raise Unfit(f"cut off: a reply had not ended after {len(drawn.token_ids)} tokens")
    if drawn.finish_reason != "stop":
        raise Unfit(f"no end: the engine says {drawn.finish_reason!r}")
    if prompt.last_id is not None and drawn.token_ids[-1] != prompt.last_id:
        raise Unfit("another end: the live reply ended otherwise than by the model's own end, as by a stop string")
