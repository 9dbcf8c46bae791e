"""The world of plain English, frozen: the users, their number of turns, the questions and the score.

`FILES` are hashed together (`benchmarks/learning/frozen.py`), this one first. All users are simulated
(sandbox/english/users.py) and rate every reply. As in the style benchmark, they wait after every 16 interactions until
a due step is decided.
"""

from collections.abc import Sequence
from pathlib import Path

from burnish.sandbox.demo.worlds import UNSEEN
from burnish.sandbox.english import questions, style, users
from burnish.sandbox.english.style import HOUSE_STYLE, Wish
from burnish.sandbox.english.users import EnglishUser

NAMES = ("ana", "bo", "chen", "dora", "emil", "fay", "gus", "hana")
N_INTERACTIONS = 512
MILESTONES = (0, 64, 128, 256, 384, 512)
"""The numbers of interactions after which the score is taken."""
TEMPERATURE = 0.2
MAX_TOKENS = 64
PATIENCE = 1800.0
"""Longest wait, in seconds, for the learning loop to catch up. On two busy cores a step and its trial take minutes."""

FILES: tuple[Path, ...] = (
    Path(__file__),
    *(Path(str(module.__file__)) for module in (questions, style, users)),
    *sorted(questions.FOLDER.glob("*.json*")),
    UNSEEN,
)


def people(seed: int, wishes: Sequence[Wish] = HOUSE_STYLE, of: str = "") -> list[EnglishUser]:
    """The users of a run, or of the population `of` a run."""
    return [EnglishUser(seed, f"{name} {of}".strip(), wishes) for name in NAMES]
