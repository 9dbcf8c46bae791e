"""Authentication: a key's digest is looked up in the serving table, never in SQL.

A key comes as `Authorization: Bearer …` or as `x-api-key`, as Anthropic's clients send it. If both are sent, only the
first counts. An unknown key is always refused. A request without a key may only talk, and only if the gateway listens
on loopback, `gateway.open_inference` is on, and no proxy shows between the caller and the gateway. Such a caller
belongs to the tenant `default`. Admin routes always need a key.
"""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import Scope as AsgiScope

from burnish import serving_table as table
from burnish.config import Gateway, Settings
from burnish.errors import NotAllowed
from burnish.files import Watched
from burnish.keys import Key, Scope, covers, digest
from burnish.server.gateway.access.host_guard import is_direct, is_loopback
from burnish.server.gateway.access.need import Need
from burnish.server.gateway.http.asgi import header
from burnish.serving_table import Routes


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request. `agents` limits the models; empty allows all of the tenant's."""

    key_id: str
    tenant: str
    scopes: frozenset[Scope]
    agents: frozenset[str] = frozenset()
    requests_per_minute: int = 0
    max_concurrent: int = 0

    def covers(self, scope: Scope) -> bool:
        return covers(self.scopes, scope)

    @classmethod
    def of(cls, key: Key) -> "Caller":
        return cls(key.key_id, key.tenant, key.scopes, key.agents, key.requests_per_minute, key.max_concurrent)


OPEN_CALLER = Caller("open", "default", frozenset({Scope.INFERENCE}))
NOBODY = Caller("", "", frozenset())
"""The caller of a route that asks for no key."""


class Keyring:
    """Finds the caller of a request among the serving table's keys."""

    def __init__(self, settings: Gateway, routes: Watched[Routes]) -> None:
        self._routes = routes
        self._is_open = settings.open_inference and is_loopback(settings.host)

    def caller(self, scope: AsgiScope) -> Caller:
        """The caller, whatever it may do. Raises NotAllowed (401) for a missing, malformed or unknown key."""
        secret = secret_of(scope)
        if not secret:
            if self._is_open and is_direct(scope):
                return OPEN_CALLER
            raise NotAllowed(
                "no key: expected the header `Authorization: Bearer sk-burnish-…` or `x-api-key`",
                code="missing_api_key",
            )
        key = self._routes.current().keys.get(digest(secret))
        if key is None:
            raise NotAllowed(
                "unknown key; see `burnish keys list`, or make one with `burnish keys create`", code="invalid_api_key"
            )
        return Caller.of(key)

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
        self._keyring = Keyring(settings.gateway, table.watch(settings.run_dir / "routes.json"))
        self.need = need

    def __call__(self, request: Request) -> Caller:
        return self._keyring.require(request.scope, *self.need.scopes)
