"""Named attacks on a running gateway and ingester. Each says whether it succeeded.

They speak HTTP and look at what an operator could look at: answers, logs, the journal's file, the processes. So the
same suite runs against any checkout, also one of before (`--before`).
"""

from collections.abc import Callable

from benchmarks.security.attacks.stand import Stand

Attack = Callable[[Stand], bool]
ATTACKS: dict[str, Attack] = {}
"""By name. True: the attacker got it."""


def attack(name: str) -> Callable[[Attack], Attack]:
    """File an attack under a name."""

    def file(function: Attack) -> Attack:
        add(name, function)
        return function

    return file


def add(name: str, function: Attack) -> None:
    """File an attack. Names are unique."""
    assert name not in ATTACKS, name
    ATTACKS[name] = function


def succeeded(stand: Stand, names: list[str] | None = None) -> list[str]:
    """The attacks that succeed on the stand."""
    from benchmarks.security.attacks import access, fields, identity, imports, local, settings, wire  # noqa: F401

    return [name for name, function in ATTACKS.items() if (names is None or name in names) and function(stand)]
