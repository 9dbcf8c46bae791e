"""One way in for every route but the health checks: first who asks, then how much, how often, how many at a time.

Nothing of a body is read before all four are settled. Each route names its terms, so none can be without.
"""

from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Scope

from burnish.keys import Scope as KeyScope
from burnish.server.gateway.access.keyring import NOBODY, Caller
from burnish.server.gateway.access.limits import Admission
from burnish.server.gateway.http.asgi import check_declared
from burnish.server.gateway.state import State

Who = Callable[[State, Scope], Caller]


@dataclass(frozen=True, slots=True)
class Terms:
    """`who` finds the caller or raises NotAllowed. `max_body` is in bytes; 0 means that no body is read.

    `is_reserved` routes are still served by a process that is full of replies: an operator must be able to roll back.
    """

    who: Who
    max_body: int = 0
    is_reserved: bool = False


def holder(*scopes: KeyScope) -> Who:
    """A key with one of the `scopes`; without a key, what an open gateway allows."""
    return lambda state, scope: state.keyring.require(scope, *scopes)


def anyone(state: State, scope: Scope) -> Caller:
    """Whoever it is."""
    return NOBODY


def admit(terms: Terms, state: State, scope: Scope) -> tuple[Caller, Admission]:
    """The caller, and what to enter for the length of the request. Raises NotAllowed or RequestError (413)."""
    caller = terms.who(state, scope)
    if terms.max_body:
        check_declared(scope, terms.max_body)
    return caller, state.limits.admit(caller, is_reserved=terms.is_reserved)
