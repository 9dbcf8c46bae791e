"""One session through the gateway: three steps of a request, a call, the runner's output and the agent's answer."""

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
    """A session's end: the runner's output of each step, and whether the agent reported it truly.

    `n_turns` had a reply. A session with a failed request is broken off: `is_whole` is False, and it is no success.
    """

    printed: Sequence[Printed]
    answered_truly: Sequence[bool]
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
    """Play the session `name`. Its outcome is sent if it may train, and `hinting` users comment on failed calls."""
    printed: list[Printed] = []
    answered_truly: list[bool] = []
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
        answered_truly.append(world.tells(step, printed[-1], answered.text))
        if hinting is not None and (words := hinting.after(step, printed[-1])) is not None:
            await client.comment(called.response_id, words)
    played = Played(printed, answered_truly, n_turns)
    if may_train and n_turns:
        await client.conclude(name, played.is_success)
    return played


def result(called: Reply, printed: Printed) -> dict[str, Any]:
    """The runner's message. A reply without a call gets an answer too, as from harnesses."""
    calls = called.message.get("tool_calls") or [{"id": "call_0"}]
    return {**tool_task.result_message(printed.output, calls[0]["id"]), "name": printed.name}
