"""Who is signed in: by a key, or by a one-time link that stands for the key of the pages themselves.

A login lives in this process's memory and ends with it, or `LIFE` seconds after its last use. The browser holds a
random name of it and never the key. The link's token is in a file that only this user can read; whoever uses it first
removes the file.
"""

import hmac
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish.files import replace_text

LIFE = 12 * 3600.0
MOST = 1000
"""Most logins at a time. The one that was used longest ago goes first."""


@dataclass(slots=True)
class Login:
    """A signed-in person. `flash` is a sentence for the next page. `agents` is the list of agents as of `listed_at`."""

    key: str
    name: str
    scopes: frozenset[str]
    used_at: float = field(default_factory=time.time)
    flash: str = ""
    agents: list[dict[str, Any]] = field(default_factory=list)
    listed_at: float = 0.0

    def may(self, scope: str) -> bool:
        """True if the key holds `scope`, or a scope that includes it."""
        return bool(self.scopes & {scope, "admin"}) or (scope == "viewer" and "operator" in self.scopes)


class Logins:
    """The logins of this process, by their random names."""

    def __init__(self) -> None:
        self._known: dict[str, Login] = {}

    def add(self, login: Login) -> str:
        """The name under which the browser asks from now on."""
        now = time.time()
        self._known = {name: each for name, each in self._known.items() if each.used_at > now - LIFE}
        while len(self._known) >= MOST:
            del self._known[min(self._known, key=lambda name: self._known[name].used_at)]
        name = secrets.token_urlsafe(32)
        self._known[name] = login
        return name

    def find(self, name: str | None) -> Login | None:
        """The login with that name, if it has not ended."""
        found = self._known.get(name or "")
        if found is None or found.used_at < time.time() - LIFE:
            return None
        found.used_at = time.time()
        return found

    def end(self, name: str | None) -> None:
        self._known.pop(name or "", None)


def make_link(file: Path) -> str:
    """The token of a new link, which replaces an earlier one."""
    token = secrets.token_urlsafe(24)
    replace_text(file, token + "\n", mode=0o600)
    return token


def use_link(file: Path | None, token: str) -> bool:
    """True if `token` is the one in `file`. The file is then gone, so that the link works once."""
    try:
        expected = file.read_text(encoding="utf-8").strip() if file is not None else ""
        if file is None or not expected or not hmac.compare_digest(expected.encode(), token.encode()):
            return False
        file.unlink()  # of two who use it at once, one fails here
    except OSError:
        return False
    return True
