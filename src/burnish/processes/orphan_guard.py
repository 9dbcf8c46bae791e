"""A tiny process that outlives its parent just long enough to end the parent's children.

The supervisor writes process-group ids to its standard input. When that pipe closes, however the supervisor ended,
every listed group is killed. So no orphan remains, not even a grandchild. Standard library only, so that it starts at
once.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterable


def watch(lines: Iterable[str]) -> set[int]:
    """The process groups left at the end of `lines`: `+ID` adds one, `-ID` removes one."""
    groups: set[int] = set()
    for line in lines:
        sign, number = line[:1], line[1:].strip()
        if number.isdecimal():
            (groups.add if sign == "+" else groups.discard)(int(number))
    return groups


def main() -> None:
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    for group in watch(sys.stdin):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
