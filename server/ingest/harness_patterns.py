"""The words of known harnesses, for what nothing else in a request tells.

Most side calls give themselves away (server/ingest/turn_kind.py): no tools, another conversation's words. Some carry
all tools and go on from the conversation as a user's next message would. And some harnesses bring what a tool printed
as a user's message, which must never be taken for a user's own words. Each pattern says whose it is; `make
test-harness` drives the harness and fails when its words have changed.
"""

import re

_SUMMARIES = (
    r"create a detailed summary of the conversation",  # Claude Code
    r"detailed summary of the conversation so far",  # Claude Code, when a prompt was refused as too long
    r"CONTEXT CHECKPOINT COMPACTION",  # Codex
    r"Provide a detailed prompt for continuing our conversation",  # opencode
)
_RESULTS = (
    r"Observation:",  # smolagents
    r"Call id: \S+\s+Error",  # smolagents, a tool that failed
    r"<returncode>",  # mini-swe-agent
    r"I ran this command:",  # aider
)
_SUMMARY = re.compile("|".join(_SUMMARIES), re.IGNORECASE)
_RESULT = re.compile(rf"\s*(?:{'|'.join(_RESULTS)})")


def is_summary(text: str) -> bool:
    """True where `text`, the last thing that was said, asks for a summary as a known harness does."""
    return _SUMMARY.search(text) is not None


def is_result(text: str) -> bool:
    """True where a user's message begins as a known harness begins what a tool printed."""
    return _RESULT.match(text) is not None
