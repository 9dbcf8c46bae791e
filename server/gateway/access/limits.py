"""Limits of a key: requests per minute and requests at a time, shared by all gateway processes of one machine.

They hold for the key, or for each proved user under it. Both live in small files under `run/limits`, one pair for each
key or user with limits. The rate is a generic cell rate
algorithm (ITU-T I.371): the file holds the time until which the key's allowance is spent. It is read and moved under a
lock. A burst may use a whole minute's allowance at once. A running request holds a lock on one byte of the other file.
The system releases the lock if a gateway is killed, so a crash never costs a key its share.
"""

import fcntl
import os
import random
import struct
import time
from collections import OrderedDict
from pathlib import Path

from burnish.errors import Overloaded, RateLimited
from burnish.server.gateway.access.keyring import Caller

MINUTE = 60.0
RETRY_AFTER = 1.0
MAX_IN_FLIGHT = 2000
"""Requests that one gateway process runs at a time. Beyond that it answers 503."""
RESERVED = 100
"""Places beyond these that are kept for the admin API."""
MAX_OPEN = 64
"""Files of each kind that a process keeps open without a need."""
_TIME = struct.Struct("<d")


class Limits:
    """One per gateway process."""

    def __init__(self, run_dir: Path, max_in_flight: int = MAX_IN_FLIGHT) -> None:
        self._folder = run_dir / "limits"
        self._max_in_flight = max_in_flight
        self._n_in_flight = 0
        self._rates: OrderedDict[str, int] = OrderedDict()
        self._slots: OrderedDict[str, _Slots] = OrderedDict()

    def admit(self, caller: Caller, *, is_reserved: bool = False) -> "Admission":
        """Count one request for the length of a `with` block.

        Entering raises RateLimited (429) if the key's share is used up, Overloaded (503) if this process is full.
        """
        return Admission(self, caller, is_reserved)

    def enter(self, caller: Caller, is_reserved: bool) -> int | None:
        """The slot that the request occupies. None if its key has no limit of that kind."""
        most = self._max_in_flight + RESERVED if is_reserved else self._max_in_flight
        if self._max_in_flight and self._n_in_flight >= most:
            raise Overloaded(
                f"{self._n_in_flight} requests are under way, the most this gateway takes on; please try again"
            )
        slot = self._take_slot(caller) if caller.max_concurrent else None
        self._n_in_flight += 1
        if caller.requests_per_minute:
            try:
                self._spend(caller)
            except BaseException:
                self.leave(caller, slot)
                raise
        return slot

    def leave(self, caller: Caller, slot: int | None) -> None:
        """The request has ended."""
        self._n_in_flight -= 1
        if slot is not None:
            self._slots[caller.limited_as].give_back(slot)

    @property
    def n_in_flight(self) -> int:
        """Requests that run in this process now."""
        return self._n_in_flight

    def close(self) -> None:
        for handle in (*self._rates.values(), *(slots.handle for slots in self._slots.values())):
            os.close(handle)

    def _spend(self, caller: Caller) -> None:
        """Move the key's time on by one request. Raises RateLimited if that is more than a minute ahead."""
        handle = self._rates.get(caller.limited_as)
        if handle is None:
            handle = self._rates[caller.limited_as] = self._open(caller.limited_as, "rate")
            if len(self._rates) > MAX_OPEN:
                os.close(self._rates.popitem(last=False)[1])
        else:
            self._rates.move_to_end(caller.limited_as)
        cost = MINUTE / caller.requests_per_minute
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            now = time.time()
            stored = os.pread(handle, _TIME.size, 0)
            until = _TIME.unpack(stored)[0] if len(stored) == _TIME.size else now
            if until > now + MINUTE + 1.0:  # no allowance reaches so far: the clock was wrong then and is right now
                until = now
            spent_until = max(now, until) + cost
            if spent_until - now > MINUTE + 1e-6:
                raise RateLimited(
                    f"{_named(caller)} may ask {caller.requests_per_minute} times a minute; please wait",
                    retry_after=min(spent_until - now - MINUTE, MINUTE),
                )
            os.pwrite(handle, _TIME.pack(spent_until), 0)
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)

    def _take_slot(self, caller: Caller) -> int:
        slots = self._slots.get(caller.limited_as)
        if slots is None:
            if len(self._slots) >= MAX_OPEN:
                self._close_unused()
            slots = self._slots[caller.limited_as] = _Slots(self._open(caller.limited_as, "slots"))
        else:
            self._slots.move_to_end(caller.limited_as)
        slot = slots.take(caller.max_concurrent)
        if slot is None:
            raise RateLimited(
                f"{_named(caller)} may have {caller.max_concurrent} requests under way; please wait for one to end",
                retry_after=RETRY_AFTER,
            )
        return slot

    def _close_unused(self) -> None:
        """Close the longest unused file. One with a slot in use stays open: closing it would free the slot."""
        name = next((name for name, slots in self._slots.items() if slots.is_unused), None)
        if name is not None:
            os.close(self._slots.pop(name).handle)

    def _open(self, name: str, kind: str) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        return os.open(self._folder / f"{name}.{kind}", os.O_RDWR | os.O_CREAT, 0o600)


def _named(caller: Caller) -> str:
    return f"key {caller.key_id}" if caller.user is None else f"user {caller.user} with key {caller.key_id}"


class Admission:
    """One running request's share of the limits."""

    __slots__ = ("_caller", "_is_reserved", "_limits", "_slot")

    def __init__(self, limits: Limits, caller: Caller, is_reserved: bool) -> None:
        self._limits = limits
        self._caller = caller
        self._is_reserved = is_reserved

    def __enter__(self) -> None:
        self._slot = self._limits.enter(self._caller, self._is_reserved)

    def __exit__(self, *_: object) -> None:
        self._limits.leave(self._caller, self._slot)


class _Slots:
    """Byte locks on one file. A process's own locks never exclude each other, so it counts them itself."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._mine: set[int] = set()

    @property
    def is_unused(self) -> bool:
        return not self._mine

    def take(self, n_slots: int) -> int | None:
        """Lock a free byte among the first `n_slots`. None if all are taken."""
        first = random.randrange(n_slots)
        for step in range(n_slots):
            slot = (first + step) % n_slots
            if slot in self._mine:
                continue
            try:
                fcntl.lockf(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
            except OSError:
                continue
            self._mine.add(slot)
            return slot
        return None

    def give_back(self, slot: int) -> None:
        self._mine.discard(slot)
        fcntl.lockf(self.handle, fcntl.LOCK_UN, 1, slot)
