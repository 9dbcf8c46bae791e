"""Conversations: a list with filters and search, one session as a thread, and the whole life of one turn."""

import asyncio
import time

from starlette.responses import Response

from burnish.server.ui.admin_api import ApiError, Tree, on, segment
from burnish.server.ui.charts import plots
from burnish.server.ui.visit import Visit

LIMIT = 40
SEARCH_SECONDS = 1.0
"""How long a search goes on by itself before it asks."""
LEVELS = (-0.7, -1.4, -2.3, -4.6)
"""Log-probs of 50, 25, 10 and 1 %."""
SPANS = ((1, "hour"), (24, "day"), (7 * 24, "week"), (30 * 24, "month"))
FATES = ("trained", "ready", "waiting", "dropped")


async def conversations(visit: Visit) -> Response:
    """`/a/{agent}/conversations?text=&version=&user=&fate=&hours=&before=`."""
    fate = visit.asked("fate")
    if fate and fate not in FATES:
        raise ApiError(400, f"fate: expected one of {', '.join(FATES)}, got {fate[:80]!r}")
    wanted = {
        "text": visit.asked("text")[:200],
        "version": visit.number("version"),
        "user": visit.asked("user"),
        "fate": fate,
    }
    hours = visit.number("hours")
    since = time.time() - 3600 * hours if hours else None
    found, following, looked_to = await _search(visit, {**wanted, "since": since})
    return await visit.page(
        "conversations.html",
        f"Conversations of {visit.agent}",
        "conversations",
        turns=found,
        following=following,
        looked_to=looked_to,
        wanted=wanted,
        fates=FATES,
        hours=hours,
        spans=SPANS,
        is_filtered=bool(hours) or any(value not in (None, "") for value in wanted.values()),
    )


async def _search(visit: Visit, wanted: Tree) -> tuple[list[Tree], str | None, float | None]:
    """The turns of a page, the next page's place, and how far back was looked. One call of the API looks at few turns,
    so a search makes several.
    """
    found: list[Tree] = []
    before: str | None = visit.asked("before") or None
    until = time.monotonic() + SEARCH_SECONDS
    while True:
        told = await visit.api.get(on(visit.agent, "/turns"), before=before, limit=LIMIT - len(found), **wanted)
        found += told["turns"]
        before = told["next"]
        if before is None or len(found) >= LIMIT or time.monotonic() > until:
            return found, before, told["looked_to"]


async def session(visit: Visit) -> Response:
    """`/a/{agent}/sessions/{session}`."""
    name = str(visit.request.path_params["session"])
    told = await visit.api.get(on(visit.agent, f"/turns/session/{segment(name)}"))
    if not told["turns"]:
        raise ApiError(404, f"{visit.agent} has no session {name[:200]!r}")
    return await visit.page("session.html", "Session", "conversations", session=name, turns=told["turns"])


async def turn(visit: Visit) -> Response:
    """`/a/{agent}/turns/{turn}?tokens=`."""
    name = str(visit.request.path_params["turn"])
    told = await visit.api.get(f"/admin/turns/{segment(name)}")
    agent, _, version = str(told["agent"]).rpartition("@v")
    if agent != visit.agent:
        return visit.go(visit.path(f"turns/{segment(name)}", agent))
    thread = await visit.api.get(on(agent, f"/turns/session/{segment(told['session'])}"))
    names = [each["turn"] for each in thread["turns"]]
    at = names.index(name) if name in names else 0
    tokens, fault = await _tokens(visit, name) if visit.asked("tokens") else (None, "")
    steps = await asyncio.gather(*(_step(visit, told, version) for _ in told["used"][-1:]))
    return await visit.page(
        "turn.html",
        "Turn",
        "conversations",
        told=told,
        version=int(version),
        place=(at + 1, len(names)),
        earlier=names[at - 1] if at > 0 else None,
        later=names[at + 1] if at + 1 < len(names) else None,
        step=steps[0] if steps else None,
        tokens=tokens,
        tokens_fault=fault,
        logprobs_chart=plots.logprobs(told["logprobs"]),
    )


async def _tokens(visit: Visit, name: str) -> tuple[list[Tree] | None, str]:
    """The reply's tokens as text, each with its `level` of surprise from 0 to 4, or None and why there are none."""
    try:
        told = await visit.api.get(f"/admin/turns/{segment(name)}/tokens")
    except ApiError as error:
        return None, error.message
    return [{**each, "level": _level(each["logprob"])} for each in told["tokens"]], ""


def _level(logprob: float | None) -> int:
    """0 for a token that was more likely than not, 4 for one of less than 1 %."""
    return sum((logprob or 0.0) < bound for bound in LEVELS)


async def _step(visit: Visit, told: Tree, version: str) -> Tree | None:
    """The step that used the turn. None if its version is unknown."""
    status = str(told["training_status"])
    if not status.startswith("trained into v"):
        return None
    made = status.removeprefix("trained into v")
    try:
        return await visit.api.get(on(visit.agent, f"/learner/runs/{made}"))
    except ApiError:
        return None
