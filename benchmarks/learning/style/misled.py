"""The control for hints: when such a user says what is missing, it names any wish in any direction.

Permuting hints among turns would be no control: all users want one style, so each hint teaches it on any turn
(learner/data/shuffled_control.py). Instead, a hint's content is shuffled over all attributes and both directions.
"""

from burnish.sandbox.world import style_hints
from burnish.sandbox.world.users import SimulatedUser


class MisledUser(SimulatedUser):
    """Satisfied by the same replies as any other user. Only the words about style mean nothing."""

    def _say(self, is_right: bool, missing: tuple[str, ...]) -> str | None:
        said = super()._say(is_right, missing)
        return (
            said if said is None or not is_right else style_hints.say(self._rng.choice(style_hints.WISHES), self._rng)
        )
