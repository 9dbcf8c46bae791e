"""The judge's prompts, as files beside the code that parses the answers.

`render` fills one pair of files. `digest` names it, so that a judge's identity changes whenever its words do.
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent


@cache
def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8").strip()


def render(name: str, fields: Mapping[str, str], rubric: str = "") -> list[dict[str, str]]:
    """The chat messages of prompt `name`, with its `{field}` marks filled from `fields` (values are not scanned for
    marks).

    `rubric` ends the system message, which is otherwise the same for every case: engines keep it in their prefix cache.
    """
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
        {"role": "system", "content": _system(name, rubric)},
        {"role": "user", "content": "".join(parts)},
    ]


def digest(name: str, rubric: str = "") -> str:
    """First 12 hex digits of the SHA-256 over both files of prompt `name`, and `rubric` if there is one."""
    words = "\0".join((_system(name, rubric), _text(f"{name}.user.md")))
    return hashlib.sha256(words.encode()).hexdigest()[:12]


def _system(name: str, rubric: str) -> str:
    words = _text(f"{name}.system.md")
    return f"{words}\n\n{rubric.strip()}" if rubric.strip() else words
