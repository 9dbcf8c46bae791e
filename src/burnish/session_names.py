"""The headers that name a session: ours, and those of known harnesses. The header found is stored with the turn."""

OURS = (b"x-burnish-session", b"x-session-id")
HARNESS = (
    b"x-claude-code-session-id",
    b"thread-id",  # Codex: a sub-agent's thread is a conversation of its own within the session
    b"session-id",
    b"session_id",
    b"conversation_id",
    b"x-opencode-session",
    b"x-session-affinity",
    b"x-kilocode-taskid",
    b"x-client-session-id",
    b"x-coder-chat-id",
    b"x-amp-thread-id",
)


def rule_of(quoted_by: str | None) -> str | None:
    """`header`, `harness` or `body`: the kind of the name that fired."""
    if quoted_by is None:
        return None
    name = quoted_by.encode()
    return "header" if name in OURS else "harness" if name in HARNESS else "body"
