"""Personal agents: their names, and which users get one.

server/gateway/routing.py routes to one. server/ingest/personal_requests.py asks for one that does not exist.
server/rollout/personal_agents.py makes it, loads it, and unloads it when it is idle.
"""

import hashlib
import re
from collections.abc import Collection
from functools import lru_cache

from burnish.config import Personal

HEADER = b"x-burnish-user"
_OWN = re.compile(r"(.+)\.u-[0-9a-f]{12}")


@lru_cache(maxsize=20_000)
def name_of(tenant: str, agent: str, user: str) -> str:
    """The name of `user`'s personal agent, a branch of `agent`. It does not reveal the user."""
    text = "\0".join((tenant, agent, user)).encode("utf-8", "surrogatepass")
    return f"{agent}.u-{hashlib.blake2b(text, digest_size=6).hexdigest()}"


def family_of(agent: str) -> str:
    """The parent agent of a personal agent, by its name. The name itself for any other agent."""
    found = _OWN.fullmatch(agent)
    return found[1] if found else agent


def is_listed(agent: str, listed: Collection[str]) -> bool:
    """True if `listed` holds the agent, its parent agent, or `*` for all."""
    return "*" in listed or not {agent, family_of(agent)}.isdisjoint(listed)


def applies(settings: Personal, agent: str) -> bool:
    """True if users of `agent` get personal agents."""
    return settings.enabled and (not settings.agents or agent in settings.agents)
