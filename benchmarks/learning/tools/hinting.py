"""Simulated users who comment on some failed calls and name the tool that works, so that a judge can write a hint."""

import random
import re

from benchmarks.learning.tools.world import Printed, Step, Truth

SHARE = 0.4
"""The share of failed calls with a comment (reference experiment B: 40 % of errors name the tool)."""
_WORDS = "Use the {tool} tool."
_SAID = re.compile(r"Use the \w+ tool\.")


class Hinting:
    """The users of one run. `n_said` counts their comments."""

    def __init__(self, seed: int, works: Truth) -> None:
        self.n_said = 0
        self._rng = random.Random(f"hints {seed}")
        self._works = works

    def after(self, step: Step, printed: Printed) -> str | None:
        """The user's comment on a call. None if there is none."""
        if printed.exit_code == 0 or self._rng.random() >= SHARE:
            return None
        self.n_said += 1
        return _WORDS.format(tool=self._works[step.toolset])


def said_in(text: str) -> str | None:
    """The words of such a comment in `text`, if there are any."""
    found = _SAID.search(text)
    return found[0] if found else None
