"""The seam to a judging model: it is asked m times and gives m answers as text."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
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
    """What judging has cost: answered requests, tokens as the model's server counts them, votes, and the seconds that
    were waited for them.
    """

    n_requests: int = 0
    n_prompt_tokens: int = 0
    n_answer_tokens: int = 0
    n_votes: int = 0
    seconds: float = 0.0

    def add(self, usage: object) -> None:
        """Add one request, with the `usage` of its answer (a mapping of the OpenAI form, or anything else for
        unknown). It is added to the bill of this task too."""
        counts = usage if isinstance(usage, Mapping) else {}
        spent = Usage(1, int(counts.get("prompt_tokens") or 0), int(counts.get("completion_tokens") or 0))
        self.include(spent)
        if (bill := _bill.get()) is not None:
            bill.include(spent)

    def include(self, other: "Usage") -> None:
        """Add the sums of `other`."""
        self.n_requests += other.n_requests
        self.n_prompt_tokens += other.n_prompt_tokens
        self.n_answer_tokens += other.n_answer_tokens
        self.n_votes += other.n_votes
        self.seconds += other.seconds


_bill: ContextVar[Usage | None] = ContextVar("bill", default=None)


@contextmanager
def billed() -> Iterator[Usage]:
    """What this task, and the tasks that it starts, ask of judges within the block. Several tasks ask one judge side
    by side, so the judge's own sums do not tell. A bill within another one is part of it.
    """
    bill, outer = Usage(), _bill.get()
    token = _bill.set(bill)
    try:
        yield bill
    finally:
        _bill.reset(token)
        if outer is not None:
            outer.include(bill)


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
