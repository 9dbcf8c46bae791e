"""When a user's own agent answers in the place of the agent that was asked for.

The gateway never waits for one: where the serving table has it, it answers, else the agent that it branches from.
"""

from burnish.config import Personal
from burnish.records import VersionName
from burnish.routes import Routes
from server.models import Target
from server.personal import applies, name_of


def own(target: Target, routes: Routes, settings: Personal, tenant: str, user: str | None) -> Target:
    """`user`'s own agent where the serving table has it, else `target`. Who names a version gets that version."""
    if not user or target.is_pinned or target.is_base or not applies(settings, target.agent):
        return target
    route = routes.agents.get(name_of(tenant, target.agent, user))
    if route is None or route.parent != target.agent or route.tenant != tenant:
        return target
    name = str(VersionName(route.name, route.live))
    return Target(name, route.engine_model(route.live, routes.base_name), route.name, route.live)
