"""The demo's traffic: simulated users and listeners, as ordinary `openai` clients of the gateway.

Users talk in sessions without any session header, sharing one key. Listeners ask for long replies (their turns opt
out of training), so that versions go live under streams. Each request's outcome and times are kept. Nothing is
retried.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai
from openai.types.chat import ChatCompletionMessageParam

from burnish.sandbox.demo.worlds import Conversation, Reaction, User, World
from burnish.server.rollout.forgetting_prompts import GENERAL_MAX_TOKENS, RetentionPrompt

N_LISTENERS = 5
LISTENER_MAX_TOKENS = 48
N_AT_ONCE = 24
LONGEST_WAIT = 120.0
"""Seconds."""
NO_TRAINING = {"x-burnish-train": "false"}


@dataclass(slots=True)
class Stream:
    """One streamed request: when it was open, and how it failed (None if it did not)."""

    who: str
    began: float
    ended: float = 0.0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A user's record of one exchange: the reply's id, the one before it in the same session, and whether it
    pleased."""

    user: str
    response_id: str
    previous_id: str | None
    is_satisfied: bool
    at: float


@dataclass(slots=True)
class Log:
    """The clients' record of everything."""

    streams: list[Stream] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        return [stream.error for stream in self.streams if stream.error is not None]

    def open_at(self, moment: float) -> int:
        """How many streams were open at `moment`."""
        return sum(stream.began <= moment and (stream.ended >= moment or not stream.ended) for stream in self.streams)

    def first_turn_satisfaction(self, last: int = 32) -> float | None:
        """Share of the last session openings with an immediately satisfied user. None before the first."""
        openings = [turn.is_satisfied for turn in self.turns if turn.previous_id is None][-last:]
        return sum(openings) / len(openings) if openings else None


class Pauses:
    """The pauses of users before a message: to think and, in a world whose users wait for the learner, while
    `has_step` says that a step is due or under way.
    """

    def __init__(self, world: World, seed: int, has_step: Callable[[], bool]) -> None:
        self._world, self._has_step = world, has_step
        self._rng = random.Random(f"{seed} think")

    async def wait(self) -> None:
        """One pause. Nobody waits longer than `LONGEST_WAIT` for the learner."""
        await asyncio.sleep(self._rng.uniform(*self._world.think_seconds))
        deadline = time.monotonic() + LONGEST_WAIT
        while self._world.waits_for_learner and time.monotonic() < deadline:
            if not self._has_step():
                return
            await asyncio.sleep(0.5)


class Traffic:
    """Users and listeners against one gateway."""

    def __init__(self, base_url: str, api_key: str, model: str, log: Log, world: World) -> None:
        self._client = openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key=api_key, max_retries=0, timeout=300.0)
        self._feedback = httpx.AsyncClient(
            base_url=base_url, headers={"Authorization": f"Bearer {api_key}"}, timeout=30.0
        )
        self._model = model
        self._log = log
        self._world = world
        self._n_left = 0

    async def talk(self, users: Sequence[User], n_interactions: int, pause: Callable[[], Awaitable[None]]) -> None:
        """Let the users talk until `n_interactions` replies have been requested. Each waits for `pause` before a
        message."""
        self._n_left = n_interactions
        await asyncio.gather(*(self._sessions(user, pause) for user in users))

    async def listen(self, seed: int, is_over: asyncio.Event, is_time: Callable[[], bool]) -> None:
        """Hold `N_LISTENERS` long streams open while `is_time` says so, until `is_over`."""
        rngs = [random.Random(f"{seed} listener {n}") for n in range(N_LISTENERS)]
        await asyncio.gather(*(self._listen(rng, is_over, is_time) for rng in rngs))

    async def ask(self, prompts: Sequence[Conversation], model: str | None = None) -> list[str]:
        """Answers of the agent, or of another `model`, to single prompts, kept out of training. An empty answer for a
        failed request.
        """
        return await self._answers(prompts, model, self._world.temperature, self._world.max_tokens)

    async def n_passed(self, prompts: Sequence[RetentionPrompt], model: str | None = None) -> int:
        """How many of the prompts the agent, or another `model`, passes with its likeliest answer."""
        asked = [prompt.messages for prompt in prompts]
        answers = await self._answers(asked, model, 0.0, GENERAL_MAX_TOKENS)
        return sum(prompt.passes({"content": answer}) for prompt, answer in zip(prompts, answers, strict=True))

    async def _answers(
        self, prompts: Sequence[Conversation], model: str | None, temperature: float, max_tokens: int
    ) -> list[str]:
        slots = asyncio.Semaphore(N_AT_ONCE)
        how: dict[str, Any] = {"model": model, "temperature": temperature, "max_tokens": max_tokens}

        async def ask(messages: Conversation) -> str:
            async with slots:
                return (await self._stream("examiner", messages, headers=NO_TRAINING, **how))[1]

        return list(await asyncio.gather(*map(ask, prompts)))

    async def close(self) -> None:
        await self._client.close()
        await self._feedback.aclose()

    async def _sessions(self, user: User, pause: Callable[[], Awaitable[None]]) -> None:
        while self._n_left > 0:
            await pause()
            await self._session(user, pause)

    async def _session(self, user: User, pause: Callable[[], Awaitable[None]]) -> None:
        messages = [{"role": "user", "content": user.opening()}]
        previous: str | None = None
        while self._n_left > 0:
            self._n_left -= 1
            response_id, reply = await self._stream(user.name, messages, max_tokens=self._world.max_tokens)
            if response_id is None:
                return
            reaction = user.react(reply)
            self._log.turns.append(Turn(user.name, response_id, previous, reaction.satisfied, time.time()))
            if reaction.rating is not None:
                await self._rate(user.name, response_id, reaction)
            if reaction.message is None:
                return
            previous = response_id
            messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": reaction.message}]
            await pause()

    async def _rate(self, who: str, target: str, reaction: Reaction) -> None:
        record = Stream(who, time.time())
        self._log.streams.append(record)
        said = {"comment": reaction.comment, "demonstration": getattr(reaction, "demonstration", None)}
        body = {"target": target, "rating": reaction.rating} | {name: text for name, text in said.items() if text}
        try:
            answer = await self._feedback.post("/v1/feedback", json=body)
            if answer.status_code != 202:
                record.error = f"feedback: {answer.status_code} {answer.text[:200]}"
        except httpx.HTTPError as error:
            record.error = f"feedback: {error!r}"
        record.ended = time.time()

    async def _listen(self, rng: random.Random, is_over: asyncio.Event, is_time: Callable[[], bool]) -> None:
        while not is_over.is_set():
            if is_time():
                messages = [{"role": "user", "content": self._world.listener(rng)}]
                await self._stream("listener", messages, headers=NO_TRAINING, max_tokens=LISTENER_MAX_TOKENS)
            else:
                await asyncio.sleep(0.25)

    async def _stream(
        self,
        who: str,
        messages: Conversation,
        *,
        max_tokens: int,
        headers: dict[str, str] | None = None,
        model: str | None = None,
        temperature: float | None = None,
    ) -> tuple[str | None, str]:
        """One streamed reply: its id (None if the request failed) and text."""
        record = Stream(who, time.time())
        self._log.streams.append(record)
        response_id, parts, finish = None, [], None
        conversation: list[ChatCompletionMessageParam] = list(messages)  # type: ignore[arg-type]
        try:
            stream: Any = await self._client.chat.completions.create(
                model=model or self._model,
                messages=conversation,
                max_tokens=max_tokens,
                temperature=self._world.temperature if temperature is None else temperature,
                stream=True,
                extra_headers=headers,
            )
            async for chunk in stream:
                response_id = chunk.id
                for choice in chunk.choices:
                    parts.append(choice.delta.content or "")
                    finish = choice.finish_reason or finish
            if finish is None:
                record.error = "the stream ended without a finish_reason"
        except (openai.OpenAIError, httpx.HTTPError) as error:
            record.error = repr(error)[:300]
        record.ended = time.time()
        return (None if record.error else response_id), "".join(parts)
