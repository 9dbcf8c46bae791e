"""The in-context memory baseline: a note per user of what that user asked for before, put into the system prompt.

Generous on purpose: what a user says is read without error (`hints.read`), and the note is in the base's own words for
it.
"""

import re

from burnish.sandbox.world import style_hints

_SENTENCE_END = re.compile(r"(?<=[.?!]) ")


class Notes:
    """What each user asked for, the latest word on each attribute."""

    def __init__(self) -> None:
        self._wishes: dict[str, dict[str, bool]] = {}

    def hear(self, user: str, said: str | None) -> None:
        """Note every wish among the sentences."""
        for sentence in _SENTENCE_END.split(said or ""):
            wish = style_hints.read(sentence)
            if wish is not None:
                self._wishes.setdefault(user, {})[wish[0]] = wish[1]

    def before(self, user: str) -> list[dict[str, str]]:
        """The system message that goes before the user's first; none where nothing is known."""
        wishes = self._wishes.get(user)
        return [{"role": "system", "content": style_hints.canonical(wishes)}] if wishes else []
