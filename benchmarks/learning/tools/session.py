"""One session through the gateway: three times a request, a call, the runner's word, and what the agent makes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.learning.client import Client, Reply
from benchmarks.learning.tools import world
from benchmarks.learning.tools.hinting import Hinting
from benchmarks.learning.tools.world import Printed, Step, Truth
from burnish.sandbox.world import tool_task


@dataclass(frozen=True, slots=True)
class Played:
    """A session's end: of each step what the runner printed, and whether the agent told it truly. `n_turns` had a
    reply.

    A session in which a request failed is broken off: `is_whole` is False, and it is no success.
    """

    printed: Sequence[Printed]
    told: Sequence[bool]
    n_turns: int

    @property
    def is_whole(self) -> bool:
        return self.n_turns == world.N_TURNS

    @property
    def is_success(self) -> bool:
        return self.is_whole and all(each.exit_code == 0 for each in self.printed)


async def play(
    client: Client,
    agent: str,
    name: str,
    steps: Sequence[Step],
    works: Truth,
    *,
    may_train: bool,
    hinting: Hinting | None = None,
) -> Played:
    """The session `name`; its outcome is told where it may train, and `hinting` users comment on calls that failed."""
    printed: list[Printed] = []
    told: list[bool] = []
    n_turns = 0

    async def ask(step: Step, messages: Sequence[Mapping[str, Any]]) -> Reply | None:
        offered = [tool_task.definition(each) for each in step.names]
        sampling: dict[str, Any] = {"temperature": world.TEMPERATURE, "max_tokens": world.MAX_TOKENS}
        return await client.ask(agent, messages, tools=offered, session=name, may_train=may_train, **sampling)

    for step in steps:
        messages: list[Mapping[str, Any]] = [{"role": "user", "content": step.text}]
        called = await ask(step, messages)
        if called is None:
            break
        n_turns += 1
        printed.append(world.run(step, called.text, works))
        answered = await ask(step, [*messages, called.message, result(called, printed[-1])])
        if answered is None:
            break
        n_turns += 1
        told.append(world.tells(step, printed[-1], answered.text))
        if hinting is not None and (words := hinting.after(step, printed[-1])) is not None:
            await client.comment(called.response_id, words)
    played = Played(printed, told, n_turns)
    if may_train and n_turns:
        await client.conclude(name, played.is_success)
    return played


def result(called: Reply, printed: Printed) -> dict[str, Any]:
    """The runner's message; what is no call is answered all the same, as harnesses do."""
    calls = called.message.get("tool_calls") or [{"id": "call_0"}]
    return {**tool_task.result_message(printed.output, calls[0]["id"]), "name": printed.name}
