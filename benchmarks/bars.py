"""What every benchmark of bars does alike: tell how far it is, print its table, write the figures, end with 1 where a
bar is missed."""

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
"""What is measured, its key, the bar in words, and whether figures meet it."""

PIPED_COLUMNS = 160
"""Where nobody's terminal says how wide it is: a file is read at any width, and 80 columns cut tables' headings to
pieces."""


def make_console() -> Console:
    """The terminal, or what stands in its place."""
    return Console() if Console().is_terminal else Console(width=PIPED_COLUMNS)


@contextmanager
def workplace(console: Console, name: str) -> Iterator[tuple[Path, Tell]]:
    """A folder for the time of the measurement, and a way to say what is being measured: a status line, or lines on
    stderr."""
    with console.status("starting") as status, tempfile.TemporaryDirectory(prefix=f"burnish-{name}-") as folder:

        def tell(text: str) -> None:
            status.update(text)
            if not console.is_terminal:
                print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

        yield Path(folder), tell


def show(console: Console, title: str, bars: Sequence[Bar], figures: Figures) -> None:
    """The bars that were measured, as a table."""
    table = Table("what", "key", "figure", "bar", "", title=title)
    for what, key, bar, is_met in _measured(bars, figures):
        table.add_row(what, key, text(figures[key]), bar, "✓" if is_met(figures) else "✗")
    console.print(table)


def show_rest(console: Console, bars: Sequence[Bar], figures: Figures) -> None:
    """The figures that have no bar."""
    rest = [key for key in figures if key not in {bar[1] for bar in bars}]
    console.print(", ".join(f"{key} {text(figures[key])}" for key in rest))


def finish(console: Console, bars: Sequence[Bar], figures: Figures, file: Path | None) -> int:
    """Write the figures where `file` is given; the exit status: 1 where a bar that was measured is missed."""
    if file is not None:
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        console.print(f"written to {file}")
    return 0 if all(is_met(figures) for *_, is_met in _measured(bars, figures)) else 1


def text(value: float) -> str:
    """A figure as tables show it."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"


def _measured(bars: Sequence[Bar], figures: Figures) -> list[Bar]:
    return [bar for bar in bars if bar[1] in figures]
