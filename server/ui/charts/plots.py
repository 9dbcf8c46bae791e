"""The charts of the pages: scores by version, traffic, shares of a whole, series, and a reply's log-probs."""

import time
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from markupsafe import Markup

from burnish.server.ui.charts.svg import WIDTH, area, box, chart, dot, every, line, path, text
from burnish.server.ui.template_filters import number, percent

Tree = Mapping[str, Any]
LEFT, RIGHT, TOP = 44.0, 12.0, 14.0
TONES = 6
"""Colours for versions, used again and again in the order of the versions. The live one has a colour of its own."""
WIDE, NARROW = 1080, 380
"""Widths of the two drawings of a chart, for a desk and for a phone. The style sheet shows one of them."""


def scores(rows: Sequence[Tree], live: int | None, kind: str | None = None) -> Markup:
    """The share of good replies by version, with the bounds of its interval. `kind` names other figures of a row."""
    known = [(row["version"], figures) for row in rows if (figures := row[kind] if kind else row)["n"]]
    return _scores(known[-60:], live, WIDE, "wide") + _scores(known[-24:], live, NARROW, "thin")


def _scores(known: Sequence[tuple[int, Tree]], live: int | None, width: int, form: str) -> Markup:
    height, bottom = 236.0, 204.0
    parts = [_level(percent(share), _y(share, bottom), width) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    wide = (width - LEFT - RIGHT) / max(1, len(known))
    places = [LEFT + wide * (i + 0.5) for i in range(len(known))]
    parts.append(path([(x, _y(each["share"], bottom)) for x, (_, each) in zip(places, known, strict=True)], "trend"))
    step = every(len(known), width // 70)
    for i, (x, (version, each)) in enumerate(zip(places, known, strict=True)):
        is_live = version == live
        tip = f"v{version}: {percent(each['share'])} of {each['n']:,} rated replies were good"
        tip += f", 95 % between {percent(each['low'])} and {percent(each['high'])}"
        low, high = _y(each["low"], bottom), _y(each["high"], bottom)
        parts.append(line(x, low, x, high, "whisker live" if is_live else "whisker"))
        parts.append(
            dot(x, _y(each["share"], bottom), 5.5 if is_live else 4, "point live" if is_live else "point", tip)
        )
        if is_live or (i % step == 0 and not _is_near_live(known, i, live, step)):
            parts.append(text(x, height - 12, f"v{version}", "strong" if is_live else "", "middle"))
    named = ", ".join(f"v{version} {percent(each['share'])}" for version, each in known[-8:])
    return chart(f"Share of good replies by version: {named}", int(height), parts, f"scores {form}", width)


def _is_near_live(known: Sequence[tuple[int, Tree]], i: int, live: int | None, step: int) -> bool:
    return step > 1 and any(version == live for version, _ in known[max(0, i - step + 1) : i + step])


def _level(word: str, y: float, width: int) -> str:
    return line(LEFT, y, width - RIGHT, y, "grid") + text(LEFT - 8, y + 4, word, "", "end")


def _y(share: float, bottom: float) -> float:
    return bottom - share * (bottom - TOP)


def course(points: Sequence[Tree], version: int, baseline: int) -> Markup:
    """A canary's or a watch's course: both shares of good turns over the version's judged turns, with 95 % bounds."""
    known = [each for each in points if each["version"]["n"]]
    if len(known) < 2:
        return Markup("")
    height, bottom, width = 190.0, 156.0, 520
    parts = [_level(percent(share), _y(share, bottom), width) for share in (0.0, 0.5, 1.0)]
    last = known[-1]["judged"]
    for name, kind in (("baseline", "other"), ("version", "live")):
        rows = [(each["judged"], each[name]) for each in known if each[name]["n"]]
        at = [LEFT + (width - LEFT - RIGHT) * n / last for n, _ in rows]
        upper = [(x, _y(each["high"], bottom)) for x, (_, each) in zip(at, rows, strict=True)]
        lower = [(x, _y(each["low"], bottom)) for x, (_, each) in zip(at, rows, strict=True)]
        parts.append(area([*upper, *reversed(lower)], f"band {kind}"))
        parts.append(
            path([(x, _y(each["share"], bottom)) for x, (_, each) in zip(at, rows, strict=True)], f"run {kind}")
        )
    parts.append(text(LEFT, height - 12, "judged turns"))
    parts.append(text(width - RIGHT, height - 12, f"{last:,}", "strong", "end"))
    now = known[-1]
    spoken = f"v{version} {percent(now['version']['share'])} good of {last:,} judged turns"
    return chart(f"{spoken}, v{baseline} {percent(now['baseline']['share'])}", int(height), parts, "course", width)


def traffic(buckets: Sequence[Tree], seconds: float, live: int | None) -> Markup:
    """Replies over time, by version."""
    height, bottom, width = 190.0, 156.0, 520
    most = max((sum(each["by_version"].values()) for each in buckets), default=0) or 1
    wide = (width - LEFT - RIGHT) / max(1, len(buckets))
    shares = (0.0, 0.5, 1.0) if most > 3 else (0.0, 1.0)
    parts = [_level(number(round(most * share)), _y(share, bottom), width) for share in shares]
    for i, each in enumerate(buckets):
        y = bottom
        for version, n in sorted(each["by_version"].items(), key=lambda pair: int(pair[0])):
            tall = n / most * (bottom - TOP)
            tip = f"{clock(each['at'], seconds)}: {n:,} replies of v{version}"
            kind = "tone-live" if int(version) == live else f"tone{int(version) % TONES}"
            parts.append(box(LEFT + wide * i + 0.7, y - tall, wide - 1.4, tall, kind, tip))
            y -= tall
    step = every(len(buckets), 5)
    for i in range(0, len(buckets) - step // 2, step):
        parts.append(text(LEFT + wide * i, height - 12, clock(buckets[i]["at"], seconds)))
    total = sum(sum(each["by_version"].values()) for each in buckets)
    return chart(f"{total:,} replies over time, by version", int(height), parts, "traffic", width)


def clock(at: float, seconds: float) -> str:
    """A time on the axis of a chart of so many seconds, in UTC."""
    return time.strftime("%H:%M" if seconds <= 2 * 86_400 else "%d %b", time.gmtime(at))


def whole(counts: Sequence[tuple[str, str, int]], name: str) -> Markup:
    """Shares of a whole as one bar: (word, class, count) for each part."""
    total = sum(n for *_, n in counts) or 1
    parts, x = [], 0.0
    for word, kind, n in counts:
        wide = n / total * WIDTH
        if n:
            parts.append(box(x, 0, max(wide - 2, 1.5), 22, kind, f"{word}: {n:,} ({n / total:.0%})"))
        x += wide
    spoken = ", ".join(f"{word} {n:,}" for word, _, n in counts)
    return chart(f"{name}: {spoken}", 22, parts, "whole")


def series(name: str, points: Sequence[tuple[int, float]], bad: Sequence[int] = ()) -> Markup:
    """A figure of each step over the versions. Versions in `bad` are marked."""
    width, height, bottom, left = 340.0, 130.0, 104.0, 60.0
    known = [(version, value) for version, value in points if isfinite(value)]
    if not known:
        return Markup("")
    low, high = min(value for _, value in known), max(value for _, value in known)
    low, high = (low - 0.5, high + 0.5) if low == high else (min(low, 0.0) if low > 0 and low < high / 2 else low, high)
    wide = (width - left - RIGHT) / max(1, len(known) - 1)

    def at(i: int, value: float) -> tuple[float, float]:
        return left + wide * i, bottom - (value - low) / (high - low) * (bottom - TOP)

    parts = []
    for value in (low, high):
        y = at(0, value)[1]
        parts.append(line(left, y, width - RIGHT, y, "grid") + text(left - 6, y + 4, number(value), "", "end"))
    parts.append(path([at(i, value) for i, (_, value) in enumerate(known)], "trend strong"))
    for i, (version, value) in enumerate(known):
        kind = "point refused" if version in bad else "point small"
        parts.append(dot(*at(i, value), 3.0, kind, f"v{version}: {number(value)}"))
    parts.append(text(left, height - 8, f"v{known[0][0]}"))
    if len(known) > 1:
        parts.append(text(width - RIGHT, height - 8, f"v{known[-1][0]}", "", "end"))
    spoken = f"{name} by version, from {number(known[0][1])} to {number(known[-1][1])}"
    return chart(spoken, int(height), parts, "series", int(width))


def logprobs(values: Sequence[float]) -> Markup:
    """How likely each token of a reply was: tall bars are surprises."""
    shown = values[:600]
    if not shown:
        return Markup("")
    height, wide = 64.0, WIDTH / max(40, len(shown))
    deepest = max(1.0, *(-value for value in shown))
    parts = [
        box(wide * i, height - tall, max(wide - 0.6, 0.6), tall, "surprise", f"token {i + 1}: {value:.2f}")
        for i, value in enumerate(shown)
        for tall in (max(1.0, -value / deepest * (height - 2)),)
    ]
    mean = sum(values) / len(values)
    return chart(f"Log-probs of {len(values):,} tokens, mean {mean:.2f}", int(height), parts, "logprobs")
