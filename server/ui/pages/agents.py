"""Agents, keys, people and the audit log."""

from starlette.responses import Response

from burnish.server.ui.admin_api import ApiError
from burnish.server.ui.visit import NAV, Visit

LIMIT = 50


async def home(visit: Visit) -> Response:
    """`/`: the overview of the first agent."""
    found = await visit.agents()
    if not found:
        return await visit.page("manage/agents.html", "Agents", "agents", found=[])
    return visit.go(visit.path("overview", found[0]["name"]), visit.login.flash)


async def go(visit: Visit) -> Response:
    """`/go?agent=&page=`: the same page of another agent."""
    page = visit.asked("page")
    wanted, names = visit.asked("agent"), [each["name"] for each in await visit.agents()]
    if wanted not in names:
        raise ApiError(404, f"there is no agent {wanted[:80]!r} for this key")
    return visit.go(visit.path(page if page in dict(NAV) else "overview", wanted))


async def agents(visit: Visit) -> Response:
    """`/agents`."""
    return await visit.page("manage/agents.html", "Agents", "agents", found=await visit.agents())


async def audit(visit: Visit) -> Response:
    """`/audit?agent=&actor=&action=&before=`."""
    wanted = {name: visit.asked(name) for name in ("agent", "actor", "action")}
    told = await visit.api.get("/admin/audit", before=visit.number("before"), limit=LIMIT, **wanted)
    return await visit.page("manage/audit.html", "Audit log", "audit", told=told, wanted=wanted)


async def keys(visit: Visit) -> Response:
    """`/keys`."""
    told = await visit.api.get("/admin/keys") if visit.login.may("admin") else None
    return await visit.page("manage/keys.html", "Keys", "keys", told=told, secret=None)


async def change_keys(visit: Visit) -> Response:
    """A posted key to make, or to revoke. A new secret is shown on the answer and never again."""
    form = await visit.form()
    if key_id := form.get("revoke"):
        told = await visit.api.post("/admin/keys/revoke", {"key_id": key_id})
        return visit.go("/keys", str(told["status"]))
    body = {
        "scopes": [scope for scope in form.get("scopes", "").split(" ") if scope],
        "name": form.get("name", ""),
        "user": form.get("user") or None,
    }
    made = await visit.api.post("/admin/keys", body)
    told = await visit.api.get("/admin/keys")
    return await visit.page("manage/keys.html", "Keys", "keys", told=told, secret=made["secret"])


async def people(visit: Visit) -> Response:
    """`/people?user=`."""
    user = visit.asked("user")
    erasure = None
    if user:
        try:
            erasure = await visit.api.get("/admin/privacy/status", user=user)
        except ApiError as error:
            if error.status != 404:
                raise
    return await visit.page("manage/people.html", "People", "people", user=user, erasure=erasure, counted=None)


async def change_person(visit: Visit) -> Response:
    """A posted verb on a user's data: opt-out, opt-in, count, forget."""
    form = await visit.form()
    user, verb, reason = form.get("user", ""), form.get("verb", ""), form.get("reason") or None
    body = {"user": user, "reason": reason}
    if verb in ("opt-out", "opt-in"):
        await visit.api.post(f"/admin/privacy/{verb}", body)
        said = "is kept out of training from now on" if verb == "opt-out" else "may be trained on again"
        return visit.go("/people", f"What {user} says {said}.")
    if verb == "count":
        told = await visit.api.post("/admin/privacy/forget", {**body, "dry_run": True})
        return await visit.page("manage/people.html", "People", "people", user=user, erasure=None, counted=told)
    if verb == "forget":
        await visit.api.post("/admin/privacy/forget", body)
        return visit.go("/people", f"Everything about {user} is being erased.")
    raise ApiError(400, f"expected opt-out, opt-in, count or forget, got {verb[:80]!r}")
