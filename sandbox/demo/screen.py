"""The demo's screen: the learning curve as it grows, and the state of the loop beside it."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from burnish.sandbox.demo.facts import Pulse

HEIGHT, WIDTH = 12, 44
"""Cells. With the column of facts the picture fits an 80-column terminal."""
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def chart(exams: Sequence[tuple[int, float]], trail: Sequence[tuple[int, float]], n_most: int) -> Text:
    """Score (0 to 1) over interactions: exam points as ◆, users' first-turn satisfaction as a fine line of dots."""
    cells = [[0] * WIDTH for _ in range(HEIGHT)]
    for n, share in trail:
        x, y = _place(n, n_most, 2 * WIDTH), 4 * HEIGHT - 1 - _place(share, 1.0, 4 * HEIGHT)
        cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
    marks = {(HEIGHT - 1 - _place(score, 1.0, HEIGHT), _place(n, n_most, WIDTH)) for n, score in exams}
    goal = HEIGHT - 1 - _place(0.8, 1.0, HEIGHT)
    text = Text(no_wrap=True)
    for row, line in enumerate(cells):
        label = {0: "1.0", goal: "0.8", HEIGHT - 1: "0.0"}.get(row, "   ")
        text.append(f"{label} ┤", style="dim")
        for column, bits in enumerate(line):
            if (row, column) in marks:
                text.append("◆", style="bold green")
            elif bits:
                text.append(chr(0x2800 + bits), style="cyan")
            else:
                text.append("┈" if row == goal else " ", style="dim")
        text.append("\n")
    return text.append(f"     0{'interactions':^{WIDTH - 7}}{n_most:>6}", style="dim")


def screen(
    title: str,
    phase: str,
    seconds: float,
    exams: Sequence[tuple[int, float]],
    trail: Sequence[tuple[int, float]],
    n_most: int,
    pulse: Pulse | None,
    n_failed: int,
) -> RenderableType:
    """The whole picture for one refresh."""
    facts = Table.grid(padding=(0, 1))
    facts.add_column(style="dim", justify="right")
    facts.add_column()
    rows = [("time", f"{seconds:.0f} s"), ("doing", phase)]
    if pulse is not None:
        rows += [
            ("live", f"v{pulse.live}" if pulse.live else "base"),
            ("recorded", str(pulse.n_recorded)),
            ("judging", str(pulse.n_judging)),
            ("ready", str(pulse.n_ready)),
            ("trained on", str(pulse.n_spent)),
            ("published", str(pulse.n_published)),
            ("refused", str(pulse.n_refused)),
        ]
    rows += [
        ("score", f"{exams[-1][1]:.2f}" if exams else "–"),
        ("failed", f"[{'red' if n_failed else 'green'}]{n_failed}[/]"),
    ]
    for label, value in rows:
        facts.add_row(label, value)
    done = pulse.n_recorded if pulse else 0
    picture = Table.grid(padding=(0, 2))
    picture.add_column(no_wrap=True, min_width=WIDTH + 6)
    picture.add_column(no_wrap=True)
    picture.add_row(
        Group(chart(exams, trail, n_most), ProgressBar(total=n_most, completed=done, width=WIDTH + 5)), facts
    )
    legend = Text("◆ held-out score, by a program   ⠒ simulated users pleased at the first turn", style="dim")
    return Panel(Group(picture, legend), title=title, title_align="left", padding=(0, 1))


def _place(value: float, most: float, n_places: int) -> int:
    return min(n_places - 1, max(0, int(value / most * (n_places - 1) + 0.5)))
