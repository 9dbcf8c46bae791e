"""The in-context memory baseline: a note per user of that user's earlier wishes, put into the system prompt.

Generous on purpose: the user's words are read without error (`hints.read`), and the note uses the base's own words.
"""

import re

from burnish.sandbox.world import style_hints

_SENTENCE_END = re.compile(r"(?<=[.?!]) ")


class Notes:
    """Each user's wishes, the latest one for each attribute."""

    def __init__(self) -> None:
        self._wishes: dict[str, dict[str, bool]] = {}

    def hear(self, user: str, said: str | None) -> None:
        """Note every wish in the text."""
        for sentence in _SENTENCE_END.split(said or ""):
            wish = style_hints.read(sentence)
            if wish is not None:
                self._wishes.setdefault(user, {})[wish[0]] = wish[1]

    def before(self, user: str) -> list[dict[str, str]]:
        """The system message before the user's first message. Empty if nothing is known."""
        wishes = self._wishes.get(user)
        return [{"role": "system", "content": style_hints.canonical(wishes)}] if wishes else []
