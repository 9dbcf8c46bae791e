"""Texts of known harnesses, for cases that nothing else in a request reveals.

Most side calls can be recognised (server/ingest/turn_kind.py): they have no tools, or they quote another conversation.
Some carry all tools and continue the conversation like a user's next message. Some harnesses send a tool's output as a
user's message, which must never count as a user's words. Each pattern names its harness. `make test-harness` drives the
harness and fails if its texts have changed.
"""

import re

_SUMMARIES = (
    "create a detailed summary of the conversation",  # Claude Code
    "detailed summary of the conversation so far",  # Claude Code, after a prompt was refused as too long
    "context checkpoint compaction",  # Codex
    "provide a detailed prompt for continuing our conversation",  # opencode
)
"""In lower case, because a search that ignores case costs several times as much as one in the lowered text."""
_RESULTS = (
    r"Observation:",  # smolagents
    r"Call id: \S+\s+Error",  # smolagents, a tool that failed
    r"<returncode>",  # mini-swe-agent
    r"I ran this command:",  # aider
)
_RESULT = re.compile(rf"\s*(?:{'|'.join(_RESULTS)})")


def is_summary(text: str) -> bool:
    """True if `text`, the last message, asks for a summary as a known harness does."""
    lowered = text.lower()
    return any(words in lowered for words in _SUMMARIES)


def is_result(text: str) -> bool:
    """True if a user's message begins as a known harness begins a tool's output."""
    return _RESULT.match(text) is not None
