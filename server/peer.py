"""Whose program is at the other end of a connection on this machine: the kernel says so, whatever a request says.

`sock_diag` (Linux, no rights needed) finds one socket by its ends and tells its user: 40 µs, however many there are. A
kernel that is not asked or does not know it gives None, and then the other end counts as a stranger.
"""

import os
import socket
import struct
from contextlib import suppress
from functools import cached_property

NAME = "burnish.peer"
"""Where a request's scope has its connection's Peer."""
NOBODY = 65534
"""Linux gives this user for every one that has no number in a container."""
Address = tuple[str, int | None]
_SOCK_DIAG, _BY_FAMILY, _IS_REQUEST = 4, 20, 1
_LISTENS = 10
_ANSWER_SECONDS = 0.2
_HEAD, _ENDS = struct.Struct("=IHHII"), struct.Struct("!HH16s16s")
_FOUND = struct.Struct("=16xBBxxHH44xIIIII")
"""After the head: family, state, both ports, then expiry, two queues, user and inode."""


class Peer:
    """The other end of one connection."""

    def __init__(self, here: Address | None, there: Address | None) -> None:
        self._here, self._there = here, there

    @cached_property
    def is_own(self) -> bool:
        """True if a program of the gateway's own user has the other end. Asked once for each connection."""
        if self._here is None or self._there is None:
            return False
        owner = owner_of(self._there, self._here)
        return owner is not None and owner == os.geteuid() != NOBODY


def owner_of(end: Address, other: Address) -> int | None:
    """The user of the socket on this machine that is bound to `end` and connected to `other`. None if nobody has it."""
    family = socket.AF_INET6 if ":" in end[0] else socket.AF_INET
    with suppress(OSError, AttributeError, struct.error):  # not Linux, not allowed, no such socket, or not of TCP
        places = (socket.inet_pton(family, address).ljust(16, b"\0") for address, _ in (end, other))
        ends = _ENDS.pack(end[1], other[1], *places) + bytes(4) + b"\xff" * 8
        asked = struct.pack("=BBxxI", family, socket.IPPROTO_TCP, 0xFFFFFFFF) + ends
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as line:
            line.settimeout(_ANSWER_SECONDS)
            line.send(_HEAD.pack(_HEAD.size + len(asked), _BY_FAMILY, _IS_REQUEST, 0, 0) + asked)
            answer = line.recv(4096)
        if _HEAD.unpack_from(answer)[1] != _BY_FAMILY:
            return None
        _, state, *ports, _, _, _, user, inode = _FOUND.unpack_from(answer)
        is_it = state != _LISTENS and [socket.ntohs(port) for port in ports] == [end[1], other[1]]
        return user if is_it and inode else None  # without an inode, no program has it any more
    return None


def is_known() -> bool:
    """True if this system tells whose a connection is."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as line:
        return owner_of(line.getsockname(), server.getsockname()) is not None
