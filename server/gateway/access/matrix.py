"""The authorisation matrix: what each route answers to each kind of caller, as the routes' declarations say.

`python -m benchmarks.security` and tests/server/gateway/access/test_matrix.py ask the real application in every cell.
docs/reference/access.md shows it.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Any

from fastapi import FastAPI

from burnish.keys import OF_USERS, Scope, covers
from burnish.server.gateway.access.keyring import OPEN_CALLER
from burnish.server.gateway.access.need import Need, Reach, declared_in
from burnish.server.gateway.app import MODEL, MODEL_PATH, PAGES, ROUTES, terms_behind

ALLOWED = 200
"""Stands for every answer that is no refusal."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A route. All `needs` must be met, and the last says what it can touch. Without any, nobody has decided."""

    method: str
    path: str
    needs: tuple[Need, ...]

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def reach(self) -> Reach:
        return self.needs[-1].reach


class KeyKind(StrEnum):
    """The key that a request brings."""

    NONE = "none"
    PROXIED = "none, through a proxy"
    UNKNOWN = "unknown"
    KNOWN = "known"


class Agents(StrEnum):
    """The agents that the key is limited to."""

    ALL = "all"
    THIS = "this"
    OTHER = "another"


class Binding(StrEnum):
    """Whether the caller is proved to be the thing's user."""

    NONE = "no user"
    KEY = "the user, by a key"
    TOKEN = "the user, by a token"
    OTHER_KEY = "another user, by a key"
    OTHER_TOKEN = "another user, by a token"


BOUND = tuple(product(sorted(OF_USERS), tuple(Binding)[1:]))
"""The scopes and bindings of keys and tokens that have a user."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks about a thing of one tenant, one of its agents and one of its users. `scope` is None without a key.

    A request names the thing's user, whoever sends it.
    """

    key: KeyKind
    scope: Scope | None = None
    is_own_tenant: bool = True
    agents: Agents = Agents.ALL
    binding: Binding = Binding.NONE

    @property
    def held(self) -> frozenset[Scope]:
        """What it may do. The gateway listens on loopback and is open for inference."""
        if self.key is KeyKind.NONE:
            return OPEN_CALLER.scopes
        return frozenset({self.scope}) if self.scope else frozenset()

    @property
    def is_in_reach(self) -> bool:
        """True if the thing's tenant and agent are the key's."""
        return self.is_own_tenant and self.agents is not Agents.OTHER

    @property
    def is_user(self) -> bool:
        """True if the caller is, or may name, the thing's user."""
        if self.binding is Binding.NONE:
            return covers(self.held, Scope.USERS)
        return self.binding in (Binding.KEY, Binding.TOKEN)

    @property
    def is_other_user(self) -> bool:
        return self.binding in (Binding.OTHER_KEY, Binding.OTHER_TOKEN)


@dataclass(frozen=True, slots=True)
class Expected:
    """A refusal's status or ALLOWED. `is_shown`: a list shows the thing, feedback joins its target, or the user's
    personal agent answers.
    """

    status: int
    is_shown: bool = True


def declared(behind: FastAPI) -> list[Declared]:
    """Every route of a gateway that has the application `behind` its hot path."""
    raw = {**ROUTES, MODEL_PATH + "{id}": MODEL}
    found = [
        Declared(method, path, (route.terms.need,))
        for path, answers in raw.items()
        for method, route in answers.items()
    ]
    for route in behind.routes:
        path, methods = getattr(route, "path", str(route)), getattr(route, "methods", None) or {"ANY"}
        found += [Declared(method, path, _needs(route, path)) for method in sorted(methods) if method != "HEAD"]
    return found


def _needs(route: Any, path: str) -> tuple[Need, ...]:
    """The needs of a route behind the hot path. None if it declares none itself and is no page for everybody."""
    terms = terms_behind(path)
    if terms is None:
        return ()
    if path in PAGES:
        return (terms.need,)
    own = tuple(declared_in(route))
    return (terms.need, *own) if own else ()


def askers() -> list[Asker]:
    """Every kind of caller."""
    keyless = [Asker(KeyKind.NONE), Asker(KeyKind.PROXIED), Asker(KeyKind.UNKNOWN)]
    unbound = product(Scope, (True, False), Agents)
    bound = product(BOUND, (True, False), Agents)
    return [
        *keyless,
        *(Asker(KeyKind.KNOWN, *rest) for rest in unbound),
        *(Asker(KeyKind.KNOWN, scope, is_own, agents, binding) for (scope, binding), is_own, agents in bound),
    ]


def expected(route: Declared, asker: Asker) -> Expected:
    """The answer that follows from the route's needs."""
    if any(need.scopes for need in route.needs):
        if asker.key in (KeyKind.PROXIED, KeyKind.UNKNOWN):
            return Expected(401)
        if not all(need.is_met(asker.held) for need in route.needs):
            return Expected(401 if asker.key is KeyKind.NONE else 403)
    match route.reach:
        case Reach.NOTHING:
            return Expected(ALLOWED)
        case Reach.LIST if route.path.startswith("/v1/feedback"):
            return Expected(ALLOWED, asker.is_in_reach and _sees_feedback(route, asker))
        case Reach.LIST:
            return Expected(ALLOWED, asker.is_in_reach)
        case Reach.TARGET:
            return Expected(ALLOWED, asker.is_in_reach and not asker.is_other_user)
        case Reach.NEW_AGENT | Reach.USER:
            return Expected(403 if asker.agents is Agents.OTHER else ALLOWED)
        case Reach.PERSON | Reach.TENANT:
            return Expected(ALLOWED if asker.agents is Agents.ALL else 403, asker.is_own_tenant)
        case Reach.MODEL:
            status = 403 if asker.is_own_tenant and asker.agents is Agents.OTHER else _there(asker.is_in_reach)
            return Expected(status, asker.is_user)
        case Reach.FEEDBACK:
            return Expected(_there(asker.is_in_reach and _sees_feedback(route, asker)))
        case Reach.AGENT | Reach.TURN:
            return Expected(_there(asker.is_in_reach))


def _there(is_there: bool) -> int:
    return ALLOWED if is_there else 404


def _sees_feedback(route: Declared, asker: Asker) -> bool:
    """True if the feedback is the user's own, or if the key sees all of its tenant."""
    own = route.needs[-1]
    return asker.binding in (Binding.KEY, Binding.TOKEN) or Need(own.scopes - {Scope.FEEDBACK}, own.reach).is_met(
        asker.held
    )
