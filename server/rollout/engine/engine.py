"""The seam to the inference engine, as the swapper and the judge need it. The gateway's hot path relays bytes instead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished chat reply: the assistant's message, why it ended, and its length in tokens (0 where the engine does
    not say)."""

    message: Mapping[str, Any]
    finish_reason: str | None
    n_tokens: int = 0


class Engine(Protocol):
    """One inference server with named adapters. Every method raises EngineError, or EngineUnavailable where none
    answers."""

    url: str

    async def models(self) -> Sequence[str]:
        """Names that a request may ask for: the base and the loaded adapters."""

    async def load(self, name: str, path: str) -> None:
        """Load the adapter directory `path` under `name`; loading a name that is there already is an error."""

    async def unload(self, name: str) -> None:
        """Forget `name`; unknown names are fine."""

    async def next_logprobs(self, model: str, token_ids: Sequence[int]) -> Mapping[int, float]:
        """Natural-log probabilities of the likeliest next tokens (at most 20) behind `token_ids`, at temperature 1."""

    async def chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        temperature: float = 0.0,
        max_tokens: int = 256,
        priority: int = 0,
        seed: int | None = None,
    ) -> Reply:
        """One reply. A higher `priority` number waits behind lower ones; the same `seed` draws the same where the
        probabilities are."""

    async def close(self) -> None:
        """Give back connections."""
