"""Authentication: a key's digest is looked up in the serving table, never in SQL.

A key comes as `Authorization: Bearer …` or as `x-api-key`, as Anthropic's clients send it. If both are sent, only the
first counts. An unknown key is always refused. A request without a key may only talk, and only if the gateway listens
on loopback, `gateway.open_inference` is on, no public name is allowed, and a program of the gateway's own user asks.
Such a caller belongs to the tenant `default`. Admin routes always need a key.

A caller's user is proved by a key that was made for the user, by a user token in a key's place, or by a key with the
scope `users`, whose word on its users counts. Any other name in a request groups sessions and does nothing else.
"""

import hashlib
import time
from dataclasses import dataclass, field, replace

from starlette.requests import Request
from starlette.types import Scope as AsgiScope

from burnish import serving_table as table
from burnish.config import Settings
from burnish.errors import NotAllowed, RequestError
from burnish.files import Watched
from burnish.keys import MAX_USER, OF_USERS, OPEN, Key, Scope, covers, digest, ensure_secret
from burnish.records import digest_of_voice
from burnish.server.gateway.access.host_guard import is_direct, may_be_open
from burnish.server.gateway.access.need import Need
from burnish.server.gateway.access.user_tokens import PREFIX as TOKEN_PREFIX
from burnish.server.gateway.access.user_tokens import UserTokens
from burnish.server.gateway.http.asgi import header
from burnish.serving_table import Routes

USER_PART = 2
"""A user token's or a named user's requests may use one in so many of the key's limits, so that no user takes all."""
MAX_KNOWN = 10_000
"""Verified user tokens that a process remembers."""
_KNOWN_TOKENS, _KEYS_BY_ID, _CALLERS = "access.user_tokens", "access.keys_by_id", "access.callers"


@dataclass(frozen=True, slots=True)
class Share:
    """An allowance that requests use up: that of `whose`. 0: no limit."""

    name: str
    whose: str
    requests_per_minute: int
    max_concurrent: int


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request. `agents` limits the models; empty allows all of the tenant's. `user` is proved.

    Without `may_train` its turns train nothing, without `may_record` they are not recorded. `is_token`: a user token
    proves the user, and its key has other users.
    """

    key_id: str
    tenant: str
    scopes: frozenset[Scope]
    agents: frozenset[str] = frozenset()
    requests_per_minute: int = 0
    max_concurrent: int = 0
    user: str | None = None
    may_train: bool = True
    may_record: bool = True
    is_token: bool = False
    shares: tuple[Share, ...] = field(init=False, compare=False, default=())
    """The allowances that a request uses up: the user's under any key, and the key's if it has others."""
    holder: str = field(init=False, compare=False, default="")
    """Whose bodies are counted together."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", self._made_shares())
        object.__setattr__(self, "holder", self.key_id if self.user is None else f"{self.key_id} {self.user}")

    def covers(self, scope: Scope) -> bool:
        return covers(self.scopes, scope)

    def user_of(self, quoted: str | None) -> str | None:
        """The proved user of a request that names `quoted`. None if there is none. Raises RequestError."""
        if self.user is not None or quoted is None or not self.covers(Scope.USERS):
            return self.user
        if len(quoted) > MAX_USER:
            what = f"user: got a name of {len(quoted):,} characters, expected at most {MAX_USER}"
            raise RequestError(what, param="user", code="invalid_value")
        return quoted

    def _made_shares(self) -> tuple[Share, ...]:
        if not (self.requests_per_minute or self.max_concurrent):
            return ()
        limits = (self.requests_per_minute, self.max_concurrent)
        users = () if self.user is None else (self.share_of(self.user),)
        return (
            users
            if self.user is not None and not self.is_token
            else (*users, Share(self.key_id, f"key {self.key_id}", *limits))
        )

    def share_of(self, user: str) -> Share:
        """The allowance of a user under this key. All of it if the key is the user's own."""
        part = 1 if self.user is not None and not self.is_token else USER_PART
        whose = f"user {user} with key {self.key_id}"
        rate, n_slots = -(-self.requests_per_minute // part), -(-self.max_concurrent // part)
        return Share(f"user-{_digest(self.tenant, user)}", whose, rate, n_slots)

    @property
    def feedback_prefix(self) -> str:
        """How the ids of this caller's feedback begin. Those of different keys or users never meet."""
        return f"{self.key_id}:" if self.user is None else f"{self.key_id}.{_digest(self.tenant, self.user)}:"

    @classmethod
    def of(cls, key: Key) -> "Caller":
        limits = (key.requests_per_minute, key.max_concurrent)
        return cls(key.key_id, key.tenant, key.scopes, key.agents, *limits, key.user, key.may_train, key.may_record)


def _digest(*parts: str) -> str:
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


OPEN_CALLER = Caller(OPEN, "default", frozenset({Scope.INFERENCE}))
NOBODY = Caller("", "", frozenset())
"""The caller of a route that asks for no key."""


class Keyring:
    """Finds the caller of a request among the serving table's keys."""

    def __init__(self, settings: Settings, routes: Watched[Routes]) -> None:
        self._routes = routes
        self._is_open = may_be_open(settings.gateway)
        self.user_tokens = UserTokens(ensure_secret(settings.state_dir / "users.key"))

    def caller(self, scope: AsgiScope) -> Caller:
        """The caller, whatever it may do. Raises NotAllowed (401) for a missing, malformed or unknown key."""
        secret = secret_of(scope)
        if not secret:
            if self._is_open and is_direct(scope):
                return OPEN_CALLER
            raise NotAllowed(
                "no key: expected the header `Authorization: Bearer sk-burnish-…` or `x-api-key`; only programs of the "
                "gateway's own user on its machine may talk without one, and none through a proxy",
                code="missing_api_key",
            )
        if secret.startswith(TOKEN_PREFIX):
            return self._bearer(secret)
        routes = self._routes.current()
        known: dict[str, Caller] = routes.memo.setdefault(_CALLERS, {})
        name = digest(secret)
        found = known.get(name)
        if found is None:
            key = routes.keys.get(name)
            if key is None:
                raise NotAllowed(
                    "unknown key; see `burnish keys list`, or make one with `burnish keys create`",
                    code="invalid_api_key",
                )
            found = known[name] = Caller.of(key)
        return found

    def check_revoked(self, tenant: str, user: str | None, made_at: float) -> None:
        """Raises NotAllowed (401) if the user's tokens were revoked after `made_at`."""
        revoked = self._routes.current().revoked
        if user is None or not revoked:
            return
        revoked_at = revoked.get(digest_of_voice((tenant, "user", user)))
        if revoked_at is not None and made_at <= revoked_at:
            raise NotAllowed("the tokens of this user were revoked; ask for a new one", code="revoked_token")

    def key_named(self, key_id: str) -> Key | None:
        """The key with that id, None if there is none (any more)."""
        routes = self._routes.current()
        by_id: dict[str, Key] | None = routes.memo.get(_KEYS_BY_ID)
        if by_id is None:
            by_id = routes.memo[_KEYS_BY_ID] = {key.key_id: key for key in routes.keys.values()}
        return by_id.get(key_id)

    def _bearer(self, token: str) -> Caller:
        """The user that a token was made for. A token is verified once for each serving table."""
        known: dict[str, tuple[int, Caller]] = self._routes.current().memo.setdefault(_KNOWN_TOKENS, {})
        found = known.get(token)
        if found is None:
            found = self._verified(token)
            if len(known) >= MAX_KNOWN:
                known.clear()
            known[token] = found
        expires_at, caller = found
        if expires_at <= time.time():
            raise NotAllowed("the user token has expired; ask for a new one", code="expired_token")
        return caller

    def _verified(self, token: str) -> tuple[int, Caller]:
        grant = self.user_tokens.read(token)
        self.check_revoked(grant.tenant, grant.user, grant.made_at)
        key = self.key_named(grant.key_id)
        if key is None or key.tenant != grant.tenant or not key.covers(Scope.USERS):
            raise NotAllowed(
                f"the user token was made with the key {grant.key_id}, which is revoked; ask for a new one",
                code="revoked_token",
            )
        scopes = frozenset(scope for scope in OF_USERS if key.covers(scope))
        caller = replace(Caller.of(key), scopes=scopes, agents=frozenset(grant.agents), user=grant.user, is_token=True)
        return grant.expires_at, caller

    def require(self, scope: AsgiScope, *needed: Scope) -> Caller:
        """The caller, if it holds at least one of the `needed` scopes. Raises NotAllowed otherwise."""
        caller = self.caller(scope)
        if caller.scopes.isdisjoint(needed) and not any(caller.covers(one) for one in needed):
            wanted = " or ".join(needed)
            if caller is OPEN_CALLER:
                raise NotAllowed(f"no key: this route needs one with the scope {wanted}", code="missing_api_key")
            held = ", ".join(sorted(caller.scopes)) or "none"
            raise NotAllowed(
                f"key {caller.key_id}: this route needs the scope {wanted}, the key has {held}", code="wrong_scope"
            )
        return caller


def secret_of(scope: AsgiScope) -> str:
    """The key as sent. Empty if there is none, or if nothing follows `Bearer`, as some clients send it."""
    given = header(scope, b"authorization")
    scheme, _, secret = ("Bearer" if given is None else given).partition(" ")
    if scheme.lower() != "bearer":
        raise NotAllowed("Authorization header: expected `Bearer <key>`", code="invalid_api_key")
    return secret.strip() or header(scope, b"x-api-key") or ""


class Holder:
    """A FastAPI dependency that gives the Caller, if it meets `need`."""

    def __init__(self, settings: Settings, need: Need) -> None:
        self._keyring = Keyring(settings, table.watch(settings.run_dir / "routes.json"))
        self.need = need

    def __call__(self, request: Request) -> Caller:
        return self._keyring.require(request.scope, *self.need.scopes)
