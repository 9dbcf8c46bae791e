"""Caps: the largest share of a step's gradient for one user, one session, or all new users together.

Weights are pure functions of each user's and session's amount. They solve for the shares *after* capping. With min(1,
cap·B/n_u) alone, one loud user in a batch with two quiet ones would still hold more than half of it, and an optimiser
that scales its steps, as Adam does, responds to shares and not to sums.

A cap protects users from each other. With fewer than 1/cap of them (4 at the default) no weights can satisfy it, so no
cap applies. A personal agent learns from its one user without a cap.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

JUDGED = 0.5
"""What a row weighs that only a judge has rated, in a step in which people or verifiers have rated others."""
MIN_WEIGHT = 0.1
"""Rows that would weigh less are thinned out."""
_ROUNDS = 200
"""Halvings of the interval that holds the solution: far beyond the precision of a float."""


@dataclass(frozen=True, slots=True)
class Voice:
    """The user behind a row, and its `size`: the tokens that it puts into the step.

    `user` identifies a person as far as the server can: a proved user, else the key. `session` is None if unknown.
    `is_new`: few turns of this user have been trained on so far, so it may be one of several names of the same person.
    `is_proved`: it is a proved user, not a key. `is_explicit`: a person or a verifier has rated it (False:
    only a judge has; None: it is no row with a reward of its own).
    """

    user: Hashable
    session: Hashable | None
    size: float
    is_new: bool = False
    is_proved: bool = True
    is_explicit: bool | None = None


def trusted(voices: Sequence[Voice], *, user: float) -> tuple[list[Voice], list[float]]:
    """The voices as the caps are to see them, and each row's weight by how explicit it is.

    Beside proved users, keys without a user are bounded as new users are, however long they are known. Where users are
    capped and others have spoken explicitly, a judge's word alone weighs `JUDGED`.
    """
    has_proved = any(voice.is_proved for voice in voices)
    is_capped = len({voice.user for voice in voices}) * user >= 1.0 - 1e-9
    is_mixed = is_capped and any(voice.is_explicit for voice in voices)
    found = [JUDGED if is_mixed and voice.is_explicit is False else 1.0 for voice in voices]
    seen = [
        replace(voice, size=voice.size * trust, is_new=voice.is_new or (has_proved and not voice.is_proved))
        for voice, trust in zip(voices, found, strict=True)
    ]
    return seen, found


def weights(voices: Sequence[Voice], *, user: float, session: float, new_users: float) -> list[float]:
    """A weight in (0, 1] per row, so that of the weighted sizes no user has more than `user`, no session more than
    `session`, and all new users together no more than `new_users`. Each cap is in (0, 1]; 1 switches it off.

    The weights are the largest that satisfy this. All are 1 with fewer than 1/`user` users. The bound on new users
    applies only if some users are not new. If those are too few for the users' cap to hand out the rest, they share it
    beyond their cap. The sessions' cap is left out if there are too few sessions for it.
    """
    people = _Sizes(voices)
    if not voices or len(people.users) * user < 1.0 - 1e-9:
        return [1.0] * len(voices)
    bounded = new_users if 0 < len(people.new) < len(people.users) else 1.0
    limits = _limits(people, user, bounded)
    inside = session if people.reach(limits, session, bounded) >= 1.0 - 1e-9 else 1.0
    total = _solve(people, limits, inside, bounded)
    return people.weights(total, limits, inside, bounded)


def thin(voices: Sequence[Voice], found: Sequence[float]) -> list[bool]:
    """Which rows to keep if the `weights` found are too small for some of them to be worth a forward pass.

    Of each user's rows, the last ones are dropped until those left weigh about 1/10 each. A user's first row stays.
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


def _limits(people: "_Sizes", user: float, new_users: float) -> dict[Hashable, float]:
    """Each user's cap. Users who are not new may share what the bound on new users leaves, if they are few."""
    n_known = len(people.users) - len(people.new)
    known = max(user, (1.0 - new_users) / n_known) if n_known else user
    return {name: user if name in people.new else known for name in people.users}


def _solve(people: "_Sizes", limits: dict[Hashable, float], session: float, new_users: float) -> float:
    """The largest total T that equals the sum of all capped sizes if the caps are shares of T.

    The capped sum is concave in T, and 0 at T = 0. So it is at least T exactly up to the solution.
    """
    low, high = 0.0, people.total
    for _ in range(_ROUNDS):
        middle = (low + high) / 2.0
        if people.left(middle, limits, session, new_users) >= middle * (1.0 - 1e-12):
            low = middle
        else:
            high = middle
    return high


class _Sizes:
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
        """The sum of the shares that the caps allow. Below 1 they cannot be satisfied together."""
        each = {name: min(len(sessions) * session, limits[name]) for name, sessions in self.users.items()}
        new = sum(share for name, share in each.items() if name in self.new)
        return sum(each.values()) - new + min(new, new_users)

    def of_user(self, name: Hashable, total: float, limits: dict[Hashable, float], session: float) -> float:
        return min(sum(min(size, session * total) for size in self.users[name].values()), limits[name] * total)

    def left(self, total: float, limits: dict[Hashable, float], session: float, new_users: float) -> float:
        """The sum of all capped sizes if the caps are shares of `total`."""
        each = {name: self.of_user(name, total, limits, session) for name in self.users}
        new = sum(size for name, size in each.items() if name in self.new)
        return sum(each.values()) - new + min(new, new_users * total)

    def weights(self, total: float, limits: dict[Hashable, float], session: float, new_users: float) -> list[float]:
        """Each row's weight at the solution `total`: the product of its session's, its user's and the new users'
        weight.
        """
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
    """A row without a known session is a session of its own."""
    return voice.session if voice.session is not None else ("row", i)
