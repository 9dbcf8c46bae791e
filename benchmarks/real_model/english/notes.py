"""The in-context memory baseline: a note per user of the wishes that this user has voiced, put into the system prompt.

Generous on purpose: the user's words are read without error, and the note states each wish as an operator would.
"""

from burnish.sandbox.english import style
from burnish.sandbox.english.style import Wish


class EnglishNotes:
    """Each user's wishes, in the order in which they were first voiced."""

    def __init__(self) -> None:
        self._wishes: dict[str, list[Wish]] = {}

    def hear(self, user: str, said: str | None) -> None:
        """Note every wish in the text."""
        known = self._wishes.setdefault(user, [])
        voiced = [wish for wish in style.HOUSE_STYLE if any(saying in (said or "") for saying in wish.sayings)]
        known += [wish for wish in voiced if wish not in known]

    def before(self, user: str) -> list[dict[str, str]]:
        """The system message before the user's first message. Empty if nothing is known."""
        wishes = self._wishes.get(user)
        return [{"role": "system", "content": style.instructions(wishes)}] if wishes else []
