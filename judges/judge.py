"""The seam to a judging model: ask it m times, get m answers as text."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from burnish.errors import BurnishError
from judges import prompts


class JudgeUnavailable(BurnishError):
    """The judging model did not answer; nothing is known about the turn."""


class Judge(Protocol):
    """A model that can be asked. `model` is its name, part of every judgement's identity."""

    model: str

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        """`n` independent answers. Raises JudgeUnavailable where the model fails or takes too long."""

    async def close(self) -> None:
        """Give back connections."""


def identity(model: str, prompt: str, rubric: str = "") -> str:
    """`model/prompt-hash`: changes when the model, the prompt's words or the rubric behind them do."""
    return f"{model}/{prompts.digest(prompt, rubric)}"
