"""The parts that all benchmarks with bars share: progress, table, JSON file, exit status 1 if a bar is missed."""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

Tell = Callable[[str], None]
Figures = Mapping[str, float]
Bar = tuple[str, str, str, Callable[[Figures], bool]]
"""The measured quantity, its key, the bar in words, and whether the figures meet it."""

PIPED_COLUMNS = 160
"""The width of output that goes to no terminal. 80 columns would cut the tables' headings."""


def make_console() -> Console:
    """The terminal, or a wide console if the output goes to a file."""
    return Console() if Console().is_terminal else Console(width=PIPED_COLUMNS)


@contextmanager
def workplace(console: Console, name: str) -> Iterator[tuple[Path, Tell]]:
    """A temporary folder for the measurement and a function that reports progress.

    Progress is a status line on a terminal, lines on stderr elsewhere.
    """
    with console.status("starting") as status, tempfile.TemporaryDirectory(prefix=f"burnish-{name}-") as folder:

        def tell(text: str) -> None:
            status.update(text)
            if not console.is_terminal:
                print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

        yield Path(folder), tell


def show(console: Console, title: str, bars: Sequence[Bar], figures: Figures) -> None:
    """Print the measured bars as a table."""
    table = Table("what", "key", "figure", "bar", "", title=title)
    for what, key, bar, is_met in _measured(bars, figures):
        table.add_row(what, key, text(figures[key]), bar, "✓" if is_met(figures) else "✗")
    console.print(table)


def show_rest(console: Console, bars: Sequence[Bar], figures: Figures) -> None:
    """Print the figures that have no bar."""
    rest = [key for key in figures if key not in {bar[1] for bar in bars}]
    console.print(", ".join(f"{key} {text(figures[key])}" for key in rest))


def finish(console: Console, bars: Sequence[Bar], figures: Figures, file: Path | None) -> int:
    """Write the figures if `file` is given. Returns the exit status: 1 if a measured bar is missed."""
    if file is not None:
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        console.print(f"written to {file}")
    return 0 if all(is_met(figures) for *_, is_met in _measured(bars, figures)) else 1


def text(value: float) -> str:
    """A figure as the tables print it."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"


def _measured(bars: Sequence[Bar], figures: Figures) -> list[Bar]:
    return [bar for bar in bars if bar[1] in figures]
