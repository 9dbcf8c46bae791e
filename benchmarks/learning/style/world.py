"""The world of style personalisation, frozen: the users, their number of turns, the prompts and the score.

`FILES` are hashed together (`benchmarks/learning/frozen.py`), this one first. The report prints the hash and a test
compares it. A change to one of them makes a new world without measurements.

All users are simulated (sandbox/world/users.py) and want one house style. A program computes the score: the correct
answer and all four style attributes, at the first turn, at temperature 1. Users think for longer than a step takes:
after every `ROUND` interactions they wait until their turns are judged and a due step is decided.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from burnish.sandbox import DATA, MODEL
from burnish.sandbox.world import heldout, language, prompt_sets, users
from burnish.sandbox.world.users import SimulatedUser

NAMES = ("ana", "bo", "chen", "dora", "emil", "fay", "gus", "hana")
N_INTERACTIONS = 512
MILESTONES = (0, 64, 128, 256, 384, 512)
"""The numbers of interactions after which the score is taken."""
ROUND = 16
TEMPERATURE = 1.0
MAX_TOKENS = 48
N_STRANGERS = 240
"""Unseen users, each of whom begins one session."""
N_AGAIN = 30
"""Further sessions that each seen user begins."""
RETENTION, N_RETENTION = "proof", 96
"""Prompts about other things than the house style (`retention.other_prompts`): none of them the gate's, none an
anchor."""

_SANDBOX = Path(users.__file__).parent
_WORDS = ("users", "language", "style_hints", "reactions", "persona", "tool_task", "heldout", "prompt_sets", "asides")
FILES: tuple[Path, ...] = (
    Path(__file__),
    *(_SANDBOX / f"{name}.py" for name in _WORDS),
    *(DATA / name for name in (prompt_sets.GATE_FILE, prompt_sets.ANCHORS_FILE)),
    *(MODEL / name for name in ("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja")),
)

Opening = tuple[SimulatedUser, str]
"""A user and the message that begins a session. `satisfied` asks the user about the reply."""


def people(seed: int, kind: type[SimulatedUser] = SimulatedUser) -> list[SimulatedUser]:
    """The users of a run."""
    return [kind(seed, name) for name in NAMES]


def strangers(seed: int) -> list[Opening]:
    """Unseen users with their first messages."""
    return _open(SimulatedUser(seed, f"stranger {n}") for n in range(N_STRANGERS))


def again(seed: int) -> list[Opening]:
    """The seen users' next sessions: `N_AGAIN` of each."""
    found = [(name, SimulatedUser(seed, f"{name} again {n}")) for name in NAMES for n in range(N_AGAIN)]
    for name, user in found:
        user.name = name
    return _open(user for _, user in found)


def satisfied(openings: Sequence[Opening], replies: Sequence[str]) -> float:
    """The share of users that the first reply satisfies, 0 to 1."""
    pairs = zip(openings, replies, strict=True)
    return sum(user.react(reply).satisfied for (user, _), reply in pairs) / len(openings)


def score(replies: Sequence[str]) -> float:
    """The share of correct replies in the house style, one reply to each of `heldout.prompts()` in order, 0 to 1."""
    return heldout.score(replies, language.HOUSE_STYLE)


def _open(found: Iterable[SimulatedUser]) -> list[Opening]:
    return [(user, user.opening()) for user in found]
