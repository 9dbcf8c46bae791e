"""The retention set: prompts with a check each, asked of the base once and of every candidate, greedily."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.gate import Retention
from burnish.errors import ConfigError
from server.engine import Engine
from server.vllm import LOW_PRIORITY

_CALL = "<tool_call>\n{}\n</tool_call>"


@dataclass(frozen=True, slots=True)
class RetentionPrompt:
    """One prompt; a reply passes when its text, tool calls written as `name(arguments)`, matches `check` as a whole."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]]
    check: re.Pattern[str]

    def passes(self, message: Mapping[str, Any]) -> bool:
        return self.check.fullmatch(shown(message)) is not None


def shown(message: Mapping[str, Any]) -> str:
    """A reply as checks see it: its text, then its tool calls in the model's own Hermes form."""
    functions = [call["function"] for call in message.get("tool_calls") or []]
    calls = [json.dumps({"name": f["name"], "arguments": _loaded(f["arguments"])}) for f in functions]
    return "\n".join(part for part in [message.get("content") or "", *(_CALL.format(call) for call in calls)] if part)


def read_prompts(path: Path, limit: int) -> list[RetentionPrompt]:
    """The first `limit` prompts of a JSONL file. Raises ConfigError naming the line that is wrong."""
    prompts: list[RetentionPrompt] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"gate.retention: cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(lines[:limit], 1):
        try:
            item = json.loads(line)
            prompts.append(RetentionPrompt(item["messages"], item.get("tools") or (), re.compile(item["check"], re.DOTALL)))
        except (ValueError, KeyError, TypeError, AttributeError, re.error) as error:
            raise ConfigError(f"gate.retention: {path} line {number}: expected messages and check, got {error!r}") from error
    return prompts


class RetentionSet:
    """Asks the prompts; the base's answers are kept for the process's life."""

    def __init__(self, prompts: Sequence[RetentionPrompt], *, concurrency: int = 24, max_tokens: int = 192) -> None:
        self._prompts = prompts
        self._concurrency = concurrency
        self._max_tokens = max_tokens
        self._base: list[bool] | None = None

    async def compare(self, engine: Engine, candidate: str, base: str, margin: float) -> Retention:
        """The paired outcome of `candidate` against `base` on this engine."""
        if self._base is None:
            self._base = await self._ask(engine, base)
        now = await self._ask(engine, candidate)
        pairs = list(zip(self._base, now, strict=True))
        return Retention(
            n=len(pairs),
            n_base=sum(self._base),
            n_candidate=sum(now),
            n_lost=sum(before and not after for before, after in pairs),
            n_won=sum(after and not before for before, after in pairs),
            margin=margin,
        )

    async def _ask(self, engine: Engine, model: str) -> list[bool]:
        slots = asyncio.Semaphore(self._concurrency)

        async def ask(prompt: RetentionPrompt) -> bool:
            async with slots:
                reply = await engine.chat(
                    model, prompt.messages, tools=prompt.tools, max_tokens=self._max_tokens, priority=LOW_PRIORITY
                )
                return prompt.passes(reply.message)

        return list(await asyncio.gather(*map(ask, self._prompts)))


def _loaded(arguments: Any) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments
