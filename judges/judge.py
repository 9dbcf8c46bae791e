"""The seam to a judging model: it is asked m times and gives m answers as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from burnish.errors import BurnishError
from burnish.judges import prompts

Structured = Literal["auto", "on", "off"]
TEMPERATURE = 0.6
"""Sampling temperature of the votes."""
MAX_TOKENS = 64
"""Longest answer of a vote, in tokens."""
VOTE_SECONDS = 30.0
"""Seconds for one vote."""


class JudgeUnavailable(BurnishError):
    """The judging model did not answer, so nothing is known about the turn."""


class JudgeRefused(JudgeUnavailable):
    """The judging model's server answers, and will never answer this question: for example it exceeds the context."""


@dataclass(slots=True)
class Usage:
    """A judge's cost since it was made: requests sent, and tokens as the model's server counts them."""

    n_requests: int = 0
    n_prompt_tokens: int = 0
    n_answer_tokens: int = 0

    def add(self, usage: object) -> None:
        """Add one request, with the `usage` of its answer (a mapping of the OpenAI form, or anything else for
        unknown)."""
        self.n_requests += 1
        counts = usage if isinstance(usage, Mapping) else {}
        self.n_prompt_tokens += int(counts.get("prompt_tokens") or 0)
        self.n_answer_tokens += int(counts.get("completion_tokens") or 0)


class Judge(Protocol):
    """A model that can be asked. `model` is its name and part of every judgement's identity."""

    model: str
    usage: Usage

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        """`n` independent answers. Raises JudgeUnavailable if the model fails or takes too long, JudgeRefused if its
        server refuses the question."""

    async def close(self) -> None:
        """Close connections."""


def identity(model: str, prompt: str, rubric: str = "") -> str:
    """`model/prompt-hash`. It changes with the model, the prompt's words or the rubric."""
    return f"{model}/{prompts.digest(prompt, rubric)}"
