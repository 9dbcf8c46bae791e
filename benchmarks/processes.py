"""The processes of one `burnish up`, by part."""

import re
from contextlib import suppress
from pathlib import Path

_PART = re.compile(r"burnish (?:run )?(\w+)")
_ENGINE = ("vllm.entrypoints", "VLLM::")


def stats() -> dict[int, list[str]]:
    """The fields of /proc/PID/stat from the state on, of all processes."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                found[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
    return found


def family(root: int, known: dict[int, list[str]]) -> set[int]:
    """`root` and all that it has started, by `stats`."""
    found = {root}
    while more := {pid for pid, fields in known.items() if int(fields[1]) in found} - found:
        found |= more
    return found


def part_of(pid: int) -> str:
    """The name of the part that the process is. The supervisor and its helpers are `guard`."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    if any(mark in command for mark in _ENGINE):
        return "engine"
    named = _PART.search(command)
    return named[1] if named else "guard"
