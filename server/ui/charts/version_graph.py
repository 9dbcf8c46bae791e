"""The lineage of an agent's versions as a graph: the served line above, versions that did not stay below."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from burnish.server.ui.charts.svg import chart, dot, text

Tree = Mapping[str, Any]
SERVED = frozenset({"live", "retired", "canary"})
STEP, LINE, BELOW = 46.0, 44.0, 104.0
MOST = 120
"""Most versions that are drawn, the latest ones."""


def graph(agent: str, rows: Sequence[Tree], live: int | None) -> Markup:
    """A graph that is as wide as it has to be. Each version is a link to its page."""
    shown = rows[-MOST:]
    first = shown[0]["parent"] if shown else 0
    places = {first: (28.0, LINE)}
    for i, row in enumerate(shown):
        is_served = row["state"] in SERVED or row["version"] == live
        places[row["version"]] = (28.0 + STEP * (i + 1), LINE if is_served else BELOW)
    parts = [_edge(places[row["parent"]], places[row["version"]], row) for row in shown if row["parent"] in places]
    parts.append(_node(agent, first, places[first], "base" if first == 0 else "retired", first == live))
    parts += [
        _node(agent, row["version"], places[row["version"]], row["state"], row["version"] == live) for row in shown
    ]
    width = int(28.0 + STEP * (len(shown) + 1))
    spoken = f"Lineage of {len(shown)} versions" + (f", v{live} is live" if live is not None else "")
    drawn = chart(spoken, 140, parts, "lineage", width, role="group")
    return Markup(str(drawn).replace("<svg ", f'<svg width="{width}" height="140" ', 1))


def _edge(start: tuple[float, float], end: tuple[float, float], row: Tree) -> str:
    (x1, y1), (x2, y2) = start, end
    middle = (x1 + x2) / 2
    kind = "edge" if row["state"] in SERVED else "edge lost"
    return (
        f'<path class="{kind}" d="M{x1:.0f} {y1:.0f} C{middle:.0f} {y1:.0f} {middle:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"/>'
    )


def _node(agent: str, version: int, place: tuple[float, float], state: str, is_live: bool) -> str:
    x, y = place
    kind = "live" if is_live else state
    word = f"v{version}: {'live' if is_live else state.replace('_', ' ')}"
    inner = dot(x, y, 11 if is_live else 8, f"node {kind}", word) + text(
        x, y + 27, f"v{version}", "strong" if is_live else "", "middle"
    )
    return (
        f'<a href="/a/{escape(agent)}/versions/{version}" aria-label="{escape(word)}">{inner}</a>' if version else inner
    )
