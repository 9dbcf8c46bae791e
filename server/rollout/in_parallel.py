"""Answers asked in parallel, until those that have come suffice."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

N_BESIDE_CLIENTS = 4
"""Prompts that the base is asked at a time while clients are served."""
Answer = TypeVar("Answer")


async def ask_until(
    ask: Callable[[int], Awaitable[Answer]],
    places: Iterable[int],
    is_settled: Callable[[Mapping[int, Answer]], bool],
    concurrency: int,
) -> dict[int, Answer]:
    """Answers by place: all of them, or those that had come when `is_settled` said that they are enough. At most
    `concurrency` are asked at a time.
    """
    slots = asyncio.Semaphore(concurrency)

    async def ask_one(place: int) -> Answer:
        async with slots:
            return await ask(place)

    answers: dict[int, Answer] = {}
    tasks = {asyncio.create_task(ask_one(place)): place for place in places}
    open_ = set(tasks)
    try:
        while open_ and not is_settled(answers):
            done, open_ = await asyncio.wait(open_, return_when=asyncio.FIRST_COMPLETED)
            answers |= {tasks[task]: task.result() for task in done}
    finally:
        for task in open_:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # several may have failed; one error is reported
    return answers
