"""How harnesses ask for summaries and titles in so many words, where nothing else tells such a call from a turn.

Most side calls give themselves away (server/kind.py): no tools, another conversation's words. These do not: they carry all tools
and go on from the conversation as a user's next message would. Each pattern says whose it is; `make test-harness` drives the
harness and fails when its words have changed.
"""

import re

_PATTERNS = (
    r"create a detailed summary of the conversation",  # Claude Code, compaction
    r"CONTEXT CHECKPOINT COMPACTION",  # Codex
    r"Provide a detailed prompt for continuing our conversation",  # opencode
)
_KNOWN = re.compile("|".join(_PATTERNS), re.IGNORECASE)


def is_known(text: str) -> bool:
    """True where `text`, the last thing that was said, asks for a summary as a known harness does."""
    return _KNOWN.search(text) is not None
