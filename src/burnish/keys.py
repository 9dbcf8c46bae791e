"""Keys and scopes. A key is shown once, when it is made. Its SHA-256 and its first characters are stored.

An inference key may talk. It may leave feedback, which is stored as the harness's and is never a reward. Only a key
with the feedback scope speaks for a user. A key with the users scope belongs to a back end: it may name its users and
make tokens for them. A key made for a user talks and gives feedback as that user. A viewer reads, an operator changes
what is served (promote, roll back), and admin may do everything, keys included. A metrics key reads the server's
figures, of all tenants, and no text of anybody.
"""

import hashlib
import os
import secrets
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from burnish.config import Settings
from burnish.errors import RequestError
from burnish.files import replace_text

PREFIX = "sk-burnish-"
MAX_USER = 512
"""Longest name of a user, in characters."""
MAX_TTL = 86_400
"""Longest life of a user token, in seconds."""
MAX_VOTE_TTL = 30 * 86_400
"""Longest life of a vote token, in seconds. No token of a user lives longer."""


class Scope(StrEnum):
    """What a key may do."""

    INFERENCE = "inference"
    FEEDBACK = "feedback"
    USERS = "users"
    METRICS = "metrics"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


UI = "ui"
"""The id of the key that the pages for people use after a one-time link. It is Burnish's own and no client's."""
OPEN = "open"
"""The id in place of a key's for programs of the gateway's own user, which may talk without a key."""
OF_USERS = frozenset({Scope.INFERENCE, Scope.FEEDBACK})
"""What somebody may do who is a user and nothing else."""


@dataclass(frozen=True, slots=True)
class Key:
    """A stored key. `digest` is the hex SHA-256 of the secret. `agents` limits the models; empty allows all.

    `requests_per_minute` and `max_concurrent` are limits; 0 means none. `user` is the user that the key was made for.
    Without `may_train` its turns train nothing. Without `may_record` they are not recorded either.
    """

    key_id: str
    digest: str
    tenant: str
    scopes: frozenset[Scope]
    agents: frozenset[str] = frozenset()
    name: str = ""
    requests_per_minute: int = 0
    max_concurrent: int = 0
    user: str | None = None
    may_train: bool = True
    may_record: bool = True

    def covers(self, scope: Scope) -> bool:
        return covers(self.scopes, scope)


def covers(held: Collection[Scope], needed: Scope) -> bool:
    """True if the scopes `held` allow what `needed` does."""
    return needed in held or Scope.ADMIN in held or (needed is Scope.VIEWER and Scope.OPERATOR in held)


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def mint(
    scopes: Iterable[Scope],
    *,
    tenant: str = "default",
    agents: Iterable[str] = (),
    name: str = "",
    requests_per_minute: int = 0,
    max_concurrent: int = 0,
    user: str | None = None,
    may_train: bool = True,
    may_record: bool = True,
) -> tuple[str, Key]:
    """A new secret and the key to store for it. Raises RequestError for a user's key with scopes that no user has."""
    held = frozenset(scopes)
    if user is not None:
        check_user(user, held)
    secret = PREFIX + secrets.token_urlsafe(24)
    key_id = secret[: len(PREFIX) + 6]
    limits, consent = (requests_per_minute, max_concurrent), (may_train and may_record, may_record)
    return secret, Key(key_id, digest(secret), tenant, held, frozenset(agents), name, *limits, user, *consent)


def check_user(user: str, scopes: Collection[Scope]) -> None:
    """Raises RequestError if a key with the `scopes` cannot be made for `user`."""
    if others := sorted(set(scopes) - OF_USERS):
        raise RequestError(
            f"scope: a key for a user has inference, feedback or both, not {', '.join(others)}; make another key",
            param="scope",
            code="invalid_value",
        )
    if not user.strip() or len(user) > MAX_USER or not user.isprintable():
        raise RequestError(
            f"user: expected 1 to {MAX_USER} printable characters, got {user[:80]!r}",
            param="user",
            code="invalid_value",
        )


def ensure_secret(path: Path, made: str | None = None) -> str:
    """The secret in `path`. If there is none, a new one, or the text `made`, is put there with mode 0600. Of processes
    that start together, one makes it.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
        replace_text(aside, (made or PREFIX + secrets.token_urlsafe(24)) + "\n", mode=0o600)
        with suppress(FileExistsError):
            os.link(aside, path)
        aside.unlink()
    return path.read_text(encoding="utf-8").strip()


def engine_key(settings: Settings) -> str:
    """The key that the engine asks for. If none is set, the engine started here gets one of its own, mode 0600."""
    if settings.engine.api_key or settings.engine.urls:
        return settings.engine.api_key
    return ensure_secret(settings.run_dir / "engine.key")
