"""One way in for every route: first who asks, then how much, how often, how many at a time.

Nothing of a body is read before all four are settled. Each route names its terms, so none can be without.
"""

from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Receive, Scope

from burnish.server.gateway.access.keyring import NOBODY, Caller
from burnish.server.gateway.access.limits import Admission
from burnish.server.gateway.access.need import Need
from burnish.server.gateway.http.asgi import check_declared
from burnish.server.gateway.state import State

Who = Callable[[State, Scope], Caller]


@dataclass(frozen=True, slots=True)
class Terms:
    """`max_body` is in bytes; 0 means that no body is read.

    `is_reserved` routes are still served by a process that is full of replies: an operator must be able to roll back.
    `is_counted` is False for the health checks: they are answered at any time. `who`, if given, finds the caller in
    place of the keyring, and raises NotAllowed.
    """

    need: Need
    max_body: int = 0
    is_reserved: bool = False
    is_counted: bool = True
    who: Who | None = None


def admit(terms: Terms, state: State, scope: Scope, receive: Receive) -> tuple[Caller, Admission]:
    """The caller, and what to enter for the length of the request. Raises NotAllowed or RequestError (413)."""
    if terms.who is not None:
        caller = terms.who(state, scope)
    else:
        scopes = terms.need.scopes
        caller = state.keyring.require(scope, *scopes) if scopes else NOBODY
    if terms.max_body:
        check_declared(scope, terms.max_body)
    return caller, state.limits.admit(caller, receive, is_reserved=terms.is_reserved)
