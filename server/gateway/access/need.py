"""What a route asks of its caller. Every route carries such a declaration.

From the declarations follow the checks, the authorisation matrix (server/gateway/access/matrix.py) and its page.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from burnish.keys import Scope, covers


class Reach(StrEnum):
    """What a route can touch, and so what becomes of a caller to whom that does not belong."""

    NOTHING = "nothing"  # nobody's data
    MODEL = "model"  # the agent that the request names as its model; its user's personal agent may answer
    AGENT = "agent"  # the agent in the path
    NEW_AGENT = "new agent"  # an agent that is to be made, in the caller's tenant
    USER = "user"  # a user of the caller's tenant, for whom a token is made
    TENANT = "tenant"  # what belongs to no agent of the caller's tenant: its keys
    PERSON = "person"  # what is stored of a user of the caller's tenant, in all agents
    TURN = "turn"  # one turn
    FEEDBACK = "feedback"  # one piece of feedback
    LIST = "list"  # everything that the caller may see
    TARGET = "target"  # a target that is looked up later, among the caller's


@dataclass(frozen=True, slots=True)
class Need:
    """One of the `scopes` is enough. Without any, no key is asked for."""

    scopes: frozenset[Scope]
    reach: Reach

    def is_met(self, held: Collection[Scope]) -> bool:
        return not self.scopes or any(covers(held, scope) for scope in self.scopes)


def need(reach: Reach, *scopes: Scope) -> Need:
    """A key with one of the `scopes`; without a key, what an open gateway allows."""
    return Need(frozenset(scopes), reach)


FREE = need(Reach.NOTHING)
"""Anybody may ask."""


def declared_in(route: Any) -> Iterator[Need]:
    """The needs that the dependencies of a route of FastAPI declare. None of any other route."""
    return _of_dependant(getattr(route, "dependant", None))


def _of_dependant(dependant: Any) -> Iterator[Need]:
    for each in getattr(dependant, "dependencies", ()):
        if isinstance(found := getattr(each.call, "need", None), Need):
            yield found
        yield from _of_dependant(each)
