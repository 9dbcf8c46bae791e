"""Caps: how much of a step's gradient one user, one session, or all new users together may be.

Weights are pure functions of who said how much. They solve for the shares as they are *after* capping: with min(1,
cap·B/n_u) alone, a batch of one loud user and two quiet ones would still be more than
half the loud one's, and an optimiser that scales its steps, as Adam does, sees shares and not sums.

A cap protects users from each other. With fewer than 1/cap of them (4 at the default) no weights can satisfy it, so
there none of the caps applies: a personal agent learns from its one user as ever.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

MIN_WEIGHT = 0.1
"""Rows that would weigh less are thinned out."""
_ROUNDS = 200
"""Halvings of the interval that holds the solution: far below what a float can tell."""


@dataclass(frozen=True, slots=True)
class Voice:
    """Who is behind a row, and its `size`: the tokens that it puts into the step.

    `user` names a person as far as the server can tell one (tenant, key, user field), `session` None where nobody
    knows. `is_new`: few turns of this user have been trained on so far, so it may be one of many names of somebody
    else.
    """

    user: Hashable
    session: Hashable | None
    size: float
    is_new: bool = False


def weights(voices: Sequence[Voice], *, user: float, session: float, new_users: float) -> list[float]:
    """A weight in (0, 1] per row, so that of the weighted sizes no user has more than `user`, no session more than
    `session` and all new users together no more than `new_users`; each in (0, 1], 1 switches it off.

    The weights are the largest that satisfy this. All are 1 with fewer than 1/`user` users. Their bound needs
    someone who is not new; where those are so few that the users' cap would leave the rest to nobody, they share it
    beyond their cap. The sessions' cap is left out where there are too few sessions for it.
    """
    people = _People(voices)
    if not voices or len(people.users) * user < 1.0 - 1e-9:
        return [1.0] * len(voices)
    bounded = new_users if 0 < len(people.new) < len(people.users) else 1.0
    limits = _limits(people, user, bounded)
    inside = session if people.reach(limits, session, bounded) >= 1.0 - 1e-9 else 1.0
    total = _solve(people, limits, inside, bounded)
    return people.weights(total, limits, inside, bounded)


def thin(voices: Sequence[Voice], found: Sequence[float]) -> list[bool]:
    """Which rows to keep where `weights` has `found` so little for some that they are not worth a forward pass.

    Of each user's rows as many go, the last ones first, as bring what is left up to about 1/10 each; a user's first row
    stays.
    """
    rows: dict[Hashable, list[int]] = {}
    for i, voice in enumerate(voices):
        rows.setdefault(voice.user, []).append(i)
    kept = [True] * len(voices)
    for members in rows.values():
        share = sum(found[i] for i in members)
        for i in members[max(1, math.ceil(share / MIN_WEIGHT - 1e-6)) :]:
            kept[i] = False
    return kept


def _limits(people: "_People", user: float, new_users: float) -> dict[Hashable, float]:
    """Each user's cap: those who are not new may have what the bound of new users leaves, if there are few of them."""
    n_known = len(people.users) - len(people.new)
    known = max(user, (1.0 - new_users) / n_known) if n_known else user
    return {name: user if name in people.new else known for name in people.users}


def _solve(people: "_People", limits: dict[Hashable, float], session: float, new_users: float) -> float:
    """The largest total T with T = Σ of what is left of each where the caps are shares of T.

    What is left is concave in T, and 0 at T = 0: it is at least T exactly up to the solution.
    """
    low, high = 0.0, people.total
    for _ in range(_ROUNDS):
        middle = (low + high) / 2.0
        if people.left(middle, limits, session, new_users) >= middle * (1.0 - 1e-12):
            low = middle
        else:
            high = middle
    return high


class _People:
    """The sizes of a step's rows by user and session."""

    def __init__(self, voices: Sequence[Voice]) -> None:
        self.voices = voices
        self.users: dict[Hashable, dict[Hashable, float]] = {}
        for i, voice in enumerate(voices):
            sessions = self.users.setdefault(voice.user, {})
            sessions[_session(voice, i)] = sessions.get(_session(voice, i), 0.0) + voice.size
        self.new = {voice.user for voice in voices if voice.is_new}
        self.total = sum(voice.size for voice in voices)

    def reach(self, limits: dict[Hashable, float], session: float, new_users: float) -> float:
        """The shares that the caps allow in all: below 1 they cannot be satisfied together."""
        each = {name: min(len(sessions) * session, limits[name]) for name, sessions in self.users.items()}
        new = sum(share for name, share in each.items() if name in self.new)
        return sum(each.values()) - new + min(new, new_users)

    def of_user(self, name: Hashable, total: float, limits: dict[Hashable, float], session: float) -> float:
        return min(sum(min(size, session * total) for size in self.users[name].values()), limits[name] * total)

    def left(self, total: float, limits: dict[Hashable, float], session: float, new_users: float) -> float:
        """What is left of all sizes where the caps are shares of `total`."""
        each = {name: self.of_user(name, total, limits, session) for name in self.users}
        new = sum(size for name, size in each.items() if name in self.new)
        return sum(each.values()) - new + min(new, new_users * total)

    def weights(self, total: float, limits: dict[Hashable, float], session: float, new_users: float) -> list[float]:
        """Each row's weight at the solution `total`: its session's, its user's and that of new users."""
        each = {name: self.of_user(name, total, limits, session) for name in self.users}
        new = sum(size for name, size in each.items() if name in self.new)
        found = []
        for i, voice in enumerate(self.voices):
            sessions = self.users[voice.user]
            size = sessions[_session(voice, i)]
            within = min(1.0, session * total / size)
            before = sum(min(part, session * total) for part in sessions.values())
            whole = min(1.0, new_users * total / new) if voice.user in self.new else 1.0
            found.append(within * min(1.0, limits[voice.user] * total / before) * whole)
        return [1.0 if weight > 1.0 - 1e-6 else weight for weight in found]


def _session(voice: Voice, i: int) -> Hashable:
    """A row whose session nobody knows is a session of its own."""
    return voice.session if voice.session is not None else ("row", i)
