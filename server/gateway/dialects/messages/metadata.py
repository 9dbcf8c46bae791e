"""`metadata.user_id`: the user and, from Claude Code, the session.

Claude Code writes `user_<hash>_account_<uuid>_session_<uuid>`. Newer versions write an object as JSON text with a
`session_id`. The part without the session names the person. Any other text names a person as it is.
"""

import json

import msgspec

FIELD = "metadata.user_id"
_MARK = "_session_"


def split(user_id: str) -> tuple[str | None, str | None]:
    """(user, session) in `user_id`. Each is None if the text does not name it."""
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
