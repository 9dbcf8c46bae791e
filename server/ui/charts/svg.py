"""The parts of a chart: a frame with a scale, text, and marks with tooltips."""

from collections.abc import Iterable

from markupsafe import Markup, escape

WIDTH = 720


def chart(
    name: str, height: int, parts: Iterable[str], kind: str = "", width: int = WIDTH, *, role: str = "img"
) -> Markup:
    """An SVG of that height, in its own units, with `name` for screen readers. `role` is `group` if it holds links."""
    body = Markup("").join(Markup(part) for part in parts)
    return Markup('<svg class="chart {}" viewBox="0 0 {} {}" role="{}" aria-label="{}">{}</svg>').format(
        kind, width, height, role, name, body
    )


def text(x: float, y: float, words: object, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def box(x: float, y: float, width: float, height: float, kind: str, tip: str = "") -> str:
    inner = f"<title>{escape(tip)}</title>" if tip else ""
    return (
        f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{max(0.0, width):.2f}" height="{max(0.0, height):.2f}">'
        f"{inner}</rect>"
    )


def dot(x: float, y: float, radius: float, kind: str, tip: str = "") -> str:
    inner = f"<title>{escape(tip)}</title>" if tip else ""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}">{inner}</circle>'


def path(points: Iterable[tuple[float, float]], kind: str) -> str:
    """A line through the points."""
    joined = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{kind}" d="M{joined}"/>' if joined else ""


def area(points: Iterable[tuple[float, float]], kind: str) -> str:
    """The area that the points enclose."""
    joined = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{kind}" d="M{joined} Z"/>' if joined else ""


def every(n: int, most: int) -> int:
    """The step with which at most `most` of `n` marks get a word."""
    return max(1, -(-n // most))
