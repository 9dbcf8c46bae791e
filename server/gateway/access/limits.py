"""Limits of a key: requests per minute and requests at a time, shared by all gateway processes of one machine.

They hold for the key with all its users together, and each proved user under it has a part of them. Both live in small
files under `run/limits`, one pair for each key or user with limits. The rate is a generic cell rate algorithm (ITU-T
I.371): the file holds the time until which the allowance is spent. It is read and moved under a lock. A burst may use a
whole minute's allowance at once. A process takes up to `AHEAD` seconds' allowance from the file at once, so a fast key
does not cost four system calls for each request. A running request holds a lock on one byte of the other file. The
system releases the lock if a gateway is killed, so a crash never costs a key its share.

The bodies of running requests have bounds together: those of one process, and of them those of one caller.
"""

import fcntl
import os
import random
import struct
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from starlette.types import Message, Receive

from burnish.errors import Overloaded, RateLimited
from burnish.server.gateway.access.keyring import Caller, Share

MINUTE = 60.0
AHEAD = 0.1
"""Seconds of a share's rate that a process takes from the file at once, one request at least."""
RETRY_AFTER = 1.0
MAX_IN_FLIGHT = 2000
"""Requests that one gateway process runs at a time. Beyond that it answers 503."""
RESERVED = 100
"""Places beyond these that are kept for the admin API."""
MAX_HELD = 512 * 2**20
"""Bytes of bodies that one process holds for its running requests. Beyond that it answers 503."""
MAX_HELD_EACH = MAX_HELD // 2
"""Of these, what one caller may have. Beyond that it gets 429."""
MAX_OPEN = 64
"""Files of each kind that a process keeps open without a need."""
_TIME = struct.Struct("<d")
_NOTHING = nullcontext()


class Limits:
    """One per gateway process."""

    def __init__(self, run_dir: Path, max_in_flight: int = MAX_IN_FLIGHT) -> None:
        self._folder = run_dir / "limits"
        self._max_in_flight = max_in_flight
        self._n_in_flight = 0
        self._n_held = 0
        self._held: dict[str, int] = {}
        self._rates: OrderedDict[str, _Rate] = OrderedDict()
        self._slots: OrderedDict[str, _Slots] = OrderedDict()

    def admit(self, caller: Caller, receive: Receive | None = None, *, is_reserved: bool = False) -> "Admission":
        """Count one request for the length of a `with` block. Its body comes from `receive`.

        Entering raises RateLimited (429) if the share of the key or its user is used up, Overloaded (503) if this
        process is full.
        """
        return Admission(self, caller, receive or _no_body, is_reserved)

    def admit_named(self, caller: Caller, user: str | None) -> AbstractContextManager[None]:
        """Count a running request for the user whom it named too, once its body is read. Raises RateLimited."""
        if user is None or caller.user is not None or not caller.shares:
            return _NOTHING
        return self._counted(caller.share_of(user))

    def enter(self, caller: Caller, is_reserved: bool) -> list[tuple[Share, int | None]]:
        """The shares that the request takes, each with the slot that it occupies."""
        most = self._max_in_flight + RESERVED if is_reserved else self._max_in_flight
        if self._max_in_flight and self._n_in_flight >= most:
            raise Overloaded(
                f"{self._n_in_flight} requests are under way, the most this gateway takes on; please try again"
            )
        taken: list[tuple[Share, int | None]] = []
        try:
            for share in caller.shares:
                taken.append((share, self._take(share)))
        except RateLimited:
            for share, slot in taken:
                self._give_back(share, slot)
                self._spend(share, -1)
            raise
        self._n_in_flight += 1
        return taken

    def leave(self, taken: Iterable[tuple[Share, int | None]], holder: str, n_held: int) -> None:
        """The request has ended. `holder` held `n_held` bytes."""
        self._n_in_flight -= 1
        for share, slot in taken:
            self._give_back(share, slot)
        if n_held:
            self._n_held -= n_held
            self._held[holder] -= n_held
            if not self._held[holder]:
                del self._held[holder]

    def hold(self, holder: str, n_bytes: int) -> None:
        """Count bytes of a body. Raises RateLimited or Overloaded, and counts them then too: the request ends."""
        self._n_held += n_bytes
        held = self._held[holder] = self._held.get(holder, 0) + n_bytes
        if held > MAX_HELD_EACH:
            said = f"your requests under way have more than {MAX_HELD_EACH:,} bytes together"
            raise RateLimited(f"{said}; please wait for one to end", retry_after=RETRY_AFTER)
        if self._n_held > MAX_HELD:
            said = f"the requests under way have more than {MAX_HELD:,} bytes together"
            raise Overloaded(f"{said}, the most this gateway holds; please try again")

    @property
    def n_in_flight(self) -> int:
        """Requests that run in this process now."""
        return self._n_in_flight

    def close(self) -> None:
        for handle in [each.handle for files in (self._rates, self._slots) for each in files.values()]:
            os.close(handle)

    @contextmanager
    def _counted(self, share: Share) -> Iterator[None]:
        slot = self._take(share)
        try:
            yield
        finally:
            self._give_back(share, slot)

    def _take(self, share: Share) -> int | None:
        """Count one request. Returns the slot that it occupies, if there is a limit of that kind."""
        slot = self._take_slot(share) if share.max_concurrent else None
        try:
            self._spend(share)
        except BaseException:
            self._give_back(share, slot)
            raise
        return slot

    def _give_back(self, share: Share, slot: int | None) -> None:
        if slot is not None:
            self._slots[share.name].give_back(slot)

    def _spend(self, share: Share, n: int = 1) -> None:
        """Move the share's time on by `n` requests. Raises RateLimited if that is more than a minute ahead."""
        if not share.requests_per_minute:
            return
        rate = self._rates.get(share.name)
        if rate is None:
            rate = self._rates[share.name] = _Rate(self._open(share.name, "rate"))
            if len(self._rates) > MAX_OPEN:
                os.close(self._rates.popitem(last=False)[1].handle)
        else:
            self._rates.move_to_end(share.name)
        if rate.n_ahead < n:
            rate.take(share)
        rate.n_ahead -= n

    def _take_slot(self, share: Share) -> int:
        slots = self._slots.get(share.name)
        if slots is None:
            if len(self._slots) >= MAX_OPEN:
                self._close_unused()
            slots = self._slots[share.name] = _Slots(self._open(share.name, "slots"))
        else:
            self._slots.move_to_end(share.name)
        slot = slots.take(share.max_concurrent)
        if slot is None:
            raise RateLimited(
                f"{share.whose} may have {share.max_concurrent} requests under way; please wait for one to end",
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


class Admission:
    """One running request's share of the limits."""

    __slots__ = ("_caller", "_is_reserved", "_limits", "_n_held", "_receive", "_taken")

    def __init__(self, limits: Limits, caller: Caller, receive: Receive, is_reserved: bool) -> None:
        self._limits = limits
        self._caller = caller
        self._receive = receive
        self._is_reserved = is_reserved
        self._n_held = 0

    def __enter__(self) -> None:
        self._taken = self._limits.enter(self._caller, self._is_reserved)

    def __exit__(self, *_: object) -> None:
        self._limits.leave(self._taken, self._caller.holder, self._n_held)

    async def receive(self) -> Message:
        """The next message of the request. Its bytes are held until the request has ended.

        Reserved routes take small bodies, and an operator must be able to roll back.
        """
        message = await self._receive()
        if (part := message.get("body")) and not self._is_reserved:
            self._n_held += len(part)
            self._limits.hold(self._caller.holder, len(part))
        return message


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


class _Rate:
    """A share's time in a file. `n_ahead` requests are paid for in advance."""

    __slots__ = ("handle", "n_ahead")

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.n_ahead = 0

    def take(self, share: Share) -> None:
        """Move the time on, by one request at least. Raises RateLimited if that is more than a minute ahead."""
        cost = MINUTE / share.requests_per_minute
        fcntl.flock(self.handle, fcntl.LOCK_EX)
        try:
            now = time.time()
            stored = os.pread(self.handle, _TIME.size, 0)
            until = _TIME.unpack(stored)[0] if len(stored) == _TIME.size else now
            if until > now + MINUTE + 1.0:  # no allowance reaches so far: the clock was wrong then and is right now
                until = now
            until = max(now, until)
            n = min(max(1, int(AHEAD / cost)), int((now + MINUTE + 1e-6 - until) / cost))
            if n < 1:
                raise RateLimited(
                    f"{share.whose} may ask {share.requests_per_minute} times a minute; please wait",
                    retry_after=min(until + cost - now - MINUTE, MINUTE),
                )
            os.pwrite(self.handle, _TIME.pack(until + n * cost), 0)
        finally:
            fcntl.flock(self.handle, fcntl.LOCK_UN)
        self.n_ahead += n


class _Slots:
    """Byte locks on one file. A process's own locks never exclude each other, so it counts them itself."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._mine: set[int] = set()
        self._next = random.randrange(2**16)  # processes begin at different places

    @property
    def is_unused(self) -> bool:
        return not self._mine

    def take(self, n_slots: int) -> int | None:
        """Lock a free byte among the first `n_slots`. None if all are taken."""
        for step in range(n_slots):
            slot = (self._next + step) % n_slots
            if slot in self._mine:
                continue
            try:
                fcntl.lockf(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
            except OSError:
                continue
            self._mine.add(slot)
            self._next = slot + 1
            return slot
        return None

    def give_back(self, slot: int) -> None:
        self._mine.discard(slot)
        fcntl.lockf(self.handle, fcntl.LOCK_UN, 1, slot)
