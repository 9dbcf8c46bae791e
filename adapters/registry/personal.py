"""Personal agents: what they are called, and whose users get one.

Who does what: server/gateway/routing.py puts one in the place of the agent that was asked for;
server/ingest/personal_requests.py, in the ingester, asks for one that is not there; server/rollout/personal_agents.py,
in the swapper, makes it, loads it, and unloads it when it is idle.
"""

import hashlib
import re
from functools import lru_cache

from burnish.config import Personal

HEADER = b"x-burnish-user"
MAX_USER = 512
_OWN = re.compile(r"(.+)\.u-[0-9a-f]{12}")


@lru_cache(maxsize=20_000)
def name_of(tenant: str, agent: str, user: str) -> str:
    """The name of `user`'s own agent that branches from `agent`. It does not tell who the user is."""
    text = "\0".join((tenant, agent, user)).encode("utf-8", "surrogatepass")
    return f"{agent}.u-{hashlib.blake2b(text, digest_size=6).hexdigest()}"


def family_of(agent: str) -> str:
    """The agent that a personal one branches from, going by its name; any other agent's own name."""
    found = _OWN.fullmatch(agent)
    return found[1] if found else agent


def applies(settings: Personal, agent: str) -> bool:
    """Whether users of `agent` get agents of their own."""
    return settings.enabled and (not settings.agents or agent in settings.agents)
