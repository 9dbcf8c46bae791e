"""Tables that the commands print for people. None of them cuts what it shows."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Column, Table

from burnish.cli.common import WIDE, counted, when

IDENTIFIERS = frozenset({"agent", "feedback", "from", "group of", "judge", "key", "object", "turn", "user", "version"})
"""Columns whose words are to be copied. They are broken only where they alone are wider than the terminal."""
LONGEST = 16
"""Characters of any other word that stay on one line."""

DEPTH = 3
"""Levels of a tree that a table tells."""
MANY = 8
"""Values of a list, or of a tree in a tree, that a table tells one by one."""


class Listing(Table):
    """A table in which long cells are wrapped and nothing is cut. Where the terminal is too narrow for the words, the
    columns `least` drop out, the first one first, and a line below says so.
    """

    def __init__(self, *headers: str, least: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*headers, **options)
        self._least = least

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for n in range(len(self._least) + 1):
            gone = self._least[:n]
            columns = [replace(each, overflow="fold") for each in self.columns if each.header not in gone]
            ranges = [_range(console, options, each) for each in columns]
            room = options.max_width - 3 * len(columns) - 1 - sum(least for least, _ in ranges)
            if room >= 0:
                fitted = zip(columns, _widths(ranges, room), strict=True)
                columns = [replace(each, width=width) for each, width in fitted]
                break
        shown = copy(self)
        shown.columns = columns
        if gone:
            shown.caption = f"too narrow for: {', '.join(gone)}; --json has them"
        yield from Table.__rich_console__(shown, console, options)


def facts(title: str, report: Mapping[str, Any]) -> Listing:
    """A report as one fact a line."""
    table = Listing(show_header=False, title=title)
    for name, value in report.items():
        table.add_row(escape(name_of(name)), escape(plain(value, name)))
    return table


def plain(value: Any, name: str = "", *, depth: int = 0) -> str:
    """A value as people read it, `name` being what it is called. Of long lists and deep trees only the size is told:
    --json has them.
    """
    if value is None or value in ({}, [], ""):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float | int):
        return when(value) if name.endswith("_at") else f"{value:.6g}" if isinstance(value, float) else str(value)
    if not isinstance(value, Mapping | list | tuple):
        return str(value)
    if depth == DEPTH or (depth and len(value) > MANY):
        return counted(len(value), "value")
    if isinstance(value, Mapping):
        told = ", ".join(f"{name_of(key)} {plain(each, key, depth=depth + 1)}" for key, each in value.items())
    elif len(value) <= MANY:
        told = ", ".join(plain(each, depth=DEPTH) for each in value)
    else:
        return counted(len(value), "value")
    return f"({told})" if depth else told


def name_of(key: str) -> str:
    """A key's name in words."""
    return key.replace("_", " ")


def _range(console: Console, options: ConsoleOptions, column: Column) -> tuple[int, int]:
    """The least width, of the longest word that stays whole and of a quarter of the longest line, and the width of that
    line.
    """
    wide = options.update_width(WIDE)
    found = [console.measure(cell, options=wide) for cell in (column.header, *column.cells)]
    least, most = max(each.minimum for each in found), max(each.maximum for each in found)
    return (least if column.header in IDENTIFIERS else min(max(least, most // 4), LONGEST)), most


def _widths(ranges: Sequence[tuple[int, int]], room: int) -> Iterator[int]:
    """The width of each column: the least one, and its share of the `room` that is left. What a short column does not
    need goes to the longer ones.
    """
    shares, n_left = {}, len(ranges)
    for index, (least, most) in sorted(enumerate(ranges), key=lambda each: each[1][1] - each[1][0]):
        shares[index] = min(most - least, room // n_left)
        room, n_left = room - shares[index], n_left - 1
    return (least + shares[index] for index, (least, _) in enumerate(ranges))
