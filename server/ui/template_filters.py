"""How the pages write times, numbers, rewards and messages."""

import json
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

_UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"))


def ago(at: float | None) -> Markup:
    """A time as an age, with the exact time in its tooltip. The script writes it in the reader's time zone."""
    if at is None:
        return Markup("")
    exact = datetime.fromtimestamp(at, UTC)
    shown, stamp = f"{span(max(0.0, time.time() - at))} ago", exact.isoformat(timespec="seconds")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        stamp, exact.strftime("%Y-%m-%d %H:%M:%S UTC"), shown
    )


def span(seconds: float | None) -> str:
    """A duration, in one unit."""
    if seconds is None:
        return ""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 or seconds == 0 else f"{seconds:.1f} s"


def number(value: Any) -> str:
    """A number with thousands separators, or with three significant digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def change(share: float) -> str:
    """A difference of two shares in points, with its sign."""
    points = round(100 * share)
    return f"{points:+d} points" if points else "no change"


def likelier(change: float | None) -> str:
    """A change of a reply's log-prob, in nats a token, as a change of the probability of a token."""
    if change is None:
        return ""
    share = math.expm1(change)
    return f"{share:.1%} likelier a token" if share >= 0 else f"{-share:.1%} less likely a token"


def reward(value: float | None) -> Markup:
    """A reward with its sign and its colour."""
    if value is None:
        return Markup('<span class="chip none">no reward</span>')
    kind = "good" if value > 0 else "bad" if value < 0 else "none"
    return Markup('<span class="chip {}">{}</span>').format(kind, f"{value:+.2g}" if value else "0")


def vote(value: float | None) -> str:
    return "abstained" if value is None else f"{value:+g}" if value else "0"


def message_text(message: Mapping[str, Any]) -> str:
    """A message's text. Parts that are no text are named."""
    content = message.get("content")
    if not isinstance(content, list):
        return "" if content is None else str(content)
    parts = (part if isinstance(part, Mapping) else {"text": str(part)} for part in content)
    return "\n".join(str(part.get("text") or f"[{part.get('type', 'part')}]") for part in parts)


def tool_calls(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and arguments of each tool call, the arguments laid out for reading."""
    found = []
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        arguments = function.get("arguments", "")
        try:
            arguments = json.dumps(json.loads(arguments), indent=2, ensure_ascii=False)
        except (TypeError, ValueError):
            arguments = str(arguments)
        found.append((str(function.get("name", "?")), arguments))
    return found


def plain(name: str) -> str:
    """A code name in words: `policy_loss` becomes `policy loss`."""
    return name.replace("_", " ").replace(".", " · ")


def told(value: Any) -> str:
    """A value of evidence in words: a number, two numbers as a range, or a list. A tree stays JSON."""
    if isinstance(value, list) and all(isinstance(each, int | float) for each in value) and len(value) == 2:
        return f"{number(value[0])} to {number(value[1])}"
    if isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
        return "; ".join(number(each) for each in value) or "none"
    return pretty(value) if isinstance(value, list | dict) else number(value)


def pretty(value: Any) -> str:
    """A tree as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def hit(text: str, wanted: str) -> Markup:
    """`text` with the places marked where `wanted` occurs, in any case of letters."""
    if not wanted:
        return escape(text)
    made, rest, low = Markup(""), text, wanted.casefold()
    while (at := rest.casefold().find(low)) >= 0 and len(rest.casefold()) == len(rest):
        made += escape(rest[:at]) + Markup("<mark>{}</mark>").format(rest[at : at + len(low)])
        rest = rest[at + len(low) :]
    return made + escape(rest)


FILTERS = {
    "ago": ago,
    "span": span,
    "number": number,
    "percent": percent,
    "change": change,
    "likelier": likelier,
    "reward": reward,
    "vote": vote,
    "message_text": message_text,
    "tool_calls": tool_calls,
    "plain": plain,
    "told": told,
    "pretty": pretty,
    "hit": hit,
}
