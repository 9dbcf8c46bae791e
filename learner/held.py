"""What a policy's weights are at present: several agents' loops may share one policy, and only one of them is in it at a time."""

from dataclasses import dataclass

Which = tuple[str, int]
"""An agent and its version."""


@dataclass
class Held:
    """`current` is what the adapter being trained holds (None: nothing that a version has), `teacher` what the teacher is."""

    current: Which | None = None
    teacher: Which | None = None
