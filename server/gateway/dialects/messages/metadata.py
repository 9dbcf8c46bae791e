"""`metadata.user_id`: whose request this is and, from Claude Code, of which session.

Claude Code writes `user_<hash>_account_<uuid>_session_<uuid>`, newer versions an object as JSON text with a
`session_id`. What remains without the session names the person. Any other text is a person as it stands.
"""

import json

import msgspec

FIELD = "metadata.user_id"
_MARK = "_session_"


def split(user_id: str) -> tuple[str | None, str | None]:
    """(user, session) in `user_id`, None for what it does not tell."""
    if user_id.startswith("{"):
        return _from_object(user_id)
    user, mark, session = user_id.rpartition(_MARK)
    return (user or None, session) if mark and session else (user_id or None, None)


def _from_object(text: str) -> tuple[str | None, str | None]:
    try:
        tree = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text, None
    session = tree.pop("session_id", None)
    if not isinstance(session, str) or not session:
        return text, None
    rest = {name: value for name, value in tree.items() if value not in (None, "")}
    return (json.dumps(rest, sort_keys=True, separators=(",", ":")) if rest else None), session
