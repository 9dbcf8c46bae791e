"""The seam to the inference engine, as the rollout and the judge need it. The gateway's hot path relays bytes
instead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished chat reply: the assistant's message, its finish reason, its length in tokens (0 if not reported), and
    the token ids of prompt and reply (empty if not reported)."""

    message: Mapping[str, Any]
    finish_reason: str | None
    n_tokens: int = 0
    prompt_ids: Sequence[int] = ()
    token_ids: Sequence[int] = ()


class Engine(Protocol):
    """One inference server with named adapters. Methods raise EngineError, or EngineUnavailable if no server
    answers."""

    url: str

    async def models(self) -> Sequence[str]:
        """The names that a request may ask for: the base and the loaded adapters."""

    async def load(self, name: str, path: str) -> None:
        """Load the adapter directory `path` under `name`. A name that is already loaded is an error."""

    async def unload(self, name: str) -> None:
        """Unload `name`. Unknown names are accepted."""

    async def next_logprobs(self, model: str, token_ids: Sequence[int]) -> Mapping[int, float]:
        """Natural-log probabilities of the likeliest next tokens (at most 20) after `token_ids`, at temperature 1."""

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
        """One reply. Requests with a higher `priority` number wait for those with a lower one. The same `seed` draws
        the same tokens from the same probabilities.
        """

    async def close(self) -> None:
        """Close connections."""
