"""Users who want the opposite of the house style: they praise what breaks it and complain about what keeps it.

They lie consistently, which is worse than at random: all their hints and ratings pull the same way.
"""

from burnish.sandbox.world.language import HOUSE_STYLE, Style
from burnish.sandbox.world.users import SimulatedUser

OPPOSITE: Style = {name: not wanted for name, wanted in HOUSE_STYLE.items()}


class PoisonedUser(SimulatedUser):
    """Satisfied only by a correct answer that breaks the house style in every attribute."""

    def __init__(self, seed: int, name: str) -> None:
        super().__init__(seed, name, OPPOSITE)
