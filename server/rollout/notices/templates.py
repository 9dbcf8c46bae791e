"""The words of a notice, and its body for plain and for Slack-compatible receivers."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from burnish.files import LOW_DISK

Facts = Mapping[str, Any]
LIVE, REFUSED, ROLLED_BACK = "version live", "version refused", "rolled back"
STARVED, UNFIT, DISK = "learning starved", "judge unfit", "disk low"
_TEXTS: dict[str, Callable[[Facts], str]] = {
    LIVE: lambda f: f"{f['agent']}@v{f['to']} is live (was v{f['from']}), by {f['by']}: {f['reason']}",
    REFUSED: lambda f: f"{f['agent']}@v{f['version']} was refused by {f['by']}: {f['reason']}",
    ROLLED_BACK: lambda f: f"{f['agent']} was rolled back from v{f['from']} to v{f['to']}: {f['reason']}",
    STARVED: lambda f: f"{f['agent']} does not learn: {f['reason']}",
    UNFIT: lambda f: f"the judge {f['judge']} is unfit, so its verdicts do not count: {f['reason']}",
    DISK: lambda f: LOW_DISK.format(f["free_gb"]),
}
_SIGNS = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
MOST_CHARACTERS = 2000


def text_of(notice: Facts) -> str:
    """One sentence for people."""
    event = str(notice["event"])
    try:
        text = _TEXTS[event](notice)
    except KeyError:
        facts = {key: value for key, value in notice.items() if key not in ("id", "event", "at")}
        text = f"{event}: {', '.join(f'{key} {value}' for key, value in facts.items())}"
    return text[:MOST_CHARACTERS]


def body_of(notice: Facts, *, is_slack: bool) -> bytes:
    """The JSON body. Slack reads `text` alone, in which three signs have a meaning."""
    text = text_of(notice)
    if is_slack:
        escaped = "".join(_SIGNS.get(sign, sign) for sign in text)
        return json.dumps({"text": f"Burnish: {escaped}"}).encode()
    return json.dumps({**notice, "text": text}, default=str).encode()
