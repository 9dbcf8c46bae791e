"""The judge's prompts, as files beside the code that parses the answers.

`render` fills one pair of files; `digest` names it, so that a judge's identity changes whenever its words do.
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent


@cache
def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8").strip()


def render(name: str, fields: Mapping[str, str]) -> list[dict[str, str]]:
    """The chat messages of prompt `name`, its `{field}` marks filled from `fields` (values are not scanned for marks)."""
    user = _text(f"{name}.user.md")
    parts: list[str] = []
    while user:
        head, brace, rest = user.partition("{")
        parts.append(head)
        if not brace:
            break
        field, _, user = rest.partition("}")
        parts.append(fields[field])
    return [
        {"role": "system", "content": _text(f"{name}.system.md")},
        {"role": "user", "content": "".join(parts)},
    ]


def digest(name: str) -> str:
    """First 12 hex digits of the SHA-256 over both files of prompt `name`."""
    words = "\0".join(_text(f"{name}.{part}.md") for part in ("system", "user"))
    return hashlib.sha256(words.encode()).hexdigest()[:12]
