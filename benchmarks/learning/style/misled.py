"""The control for hints: users who, when they say what is missing, name any wish in any direction.

Permuting hints among turns would be no control: all users want one style, so anybody's hint teaches it beside any turn
(learner/data/shuffled_control.py). What is shuffled is what a hint says, over all attributes and both directions.
"""

from burnish.sandbox.world import style_hints
from burnish.sandbox.world.users import SimulatedUser


class MisledUser(SimulatedUser):
    """Satisfied by what satisfies any other; only the words about style mean nothing."""

    def _say(self, is_right: bool, missing: tuple[str, ...]) -> str | None:
        said = super()._say(is_right, missing)
        return (
            said if said is None or not is_right else style_hints.say(self._rng.choice(style_hints.WISHES), self._rng)
        )
