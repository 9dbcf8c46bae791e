"""The users at work: sessions through the gateway, until a round's interactions are used up."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.learning.client import Client
from benchmarks.learning.style import world
from burnish.sandbox.demo.worlds import User

IN_A_ROW = 3


class Memory(Protocol):
    """Notes on each user's wishes."""

    def hear(self, user: str, said: str | None) -> None:
        """Note every wish in the text."""

    def before(self, user: str) -> list[dict[str, str]]:
        """The system message before the user's first message. Empty if nothing is known."""


@dataclass(slots=True)
class Talker:
    """One user and the user's current session.

    `first_turns` has, for each session, whether its first reply satisfied.
    """

    user: User
    messages: list[dict[str, str]] = field(default_factory=list)
    first_turns: list[bool] = field(default_factory=list)

    @property
    def n_until_satisfied(self) -> int | None:
        """Sessions until the first reply satisfied in three in a row, the third included. None if it never did."""
        for end in range(IN_A_ROW, len(self.first_turns) + 1):
            if all(self.first_turns[end - IN_A_ROW : end]):
                return end
        return None


class Talk:
    """All users of a run. `n_had` counts interactions with a reply. `is_named`: each request names its user."""

    def __init__(
        self,
        client: Client,
        agent: str,
        users: Sequence[User],
        notes: Memory | None,
        *,
        is_named: bool = False,
        temperature: float = world.TEMPERATURE,
        max_tokens: int = world.MAX_TOKENS,
    ) -> None:
        self.talkers = [Talker(user) for user in users]
        self.n_had = 0
        self._client = client
        self._agent = agent
        self._notes = notes
        self._is_named = is_named
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._n_left = 0

    async def round(self, n: int) -> None:
        """Have `n` interactions, all users at the same time."""
        self._n_left = n
        await asyncio.gather(*(self._go_on(talker) for talker in self.talkers))

    async def _go_on(self, talker: Talker) -> None:
        while self._n_left > 0:
            self._n_left -= 1
            await self._turn(talker)

    async def _turn(self, talker: Talker) -> None:
        user = talker.user
        is_first = not talker.messages
        if is_first:
            opening = {"role": "user", "content": user.opening()}
            talker.messages = [*(self._notes.before(user.name) if self._notes else []), opening]
        reply = await self._client.ask(
            self._agent,
            talker.messages,
            temperature=self._temperature,
            max_tokens=self._max_tokens,
            user=user.name if self._is_named else "",
        )
        if reply is None:  # the client counts it; the user gives up on the session
            talker.messages = []
            return
        self.n_had += 1
        reaction = user.react(reply.text)
        if is_first:
            talker.first_turns.append(reaction.satisfied)
        if self._notes is not None:
            self._notes.hear(user.name, reaction.message or reaction.comment)
        if reaction.rating is not None:
            right = getattr(reaction, "demonstration", None)
            await self._client.rate(reply.response_id, reaction.rating, reaction.comment, right)
        if reaction.message is None:
            talker.messages = []
            return
        spoken = [{"role": "assistant", "content": reply.text}, {"role": "user", "content": reaction.message}]
        talker.messages = [*talker.messages, *spoken]
