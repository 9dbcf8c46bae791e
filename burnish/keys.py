"""Keys and scopes. A key is shown once, when it is made; what is stored is its SHA-256 and its first characters.

An inference key may talk and may leave feedback that counts as the harness's, below the judge's word; only a key with the
feedback scope speaks for a user; only admin may change what is served.
"""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from burnish.files import replace_text

PREFIX = "sk-burnish-"


class Scope(StrEnum):
    """What a key may do."""

    INFERENCE = "inference"
    FEEDBACK = "feedback"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is stored. `digest` is the hex SHA-256 of the secret; `agents` limits the models, empty allows all."""

    key_id: str
    digest: str
    tenant: str
    scopes: frozenset[Scope]
    agents: frozenset[str] = frozenset()
    name: str = ""

    def covers(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ADMIN in self.scopes


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def mint(scopes: Iterable[Scope], *, tenant: str = "default", agents: Iterable[str] = (), name: str = "") -> tuple[str, Key]:
    """A new secret and the key to store for it."""
    secret = PREFIX + secrets.token_urlsafe(24)
    key_id = secret[: len(PREFIX) + 6]
    return secret, Key(key_id, digest(secret), tenant, frozenset(scopes), frozenset(agents), name)


def ensure_secret(path: Path) -> str:
    """The secret in `path`, made with mode 0600 where it does not exist yet."""
    if path.exists():
        return path.read_text(encoding="utf-8").strip()
    secret = PREFIX + secrets.token_urlsafe(24)
    replace_text(path, secret + "\n", mode=0o600)
    return secret
