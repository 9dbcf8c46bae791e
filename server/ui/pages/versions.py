"""Versions: the lineage, one version with its evidence, and what an operator does with it."""

import asyncio

from starlette.responses import Response

from burnish.server.ui.admin_api import ApiError, Tree, on
from burnish.server.ui.charts import plots, version_graph
from burnish.server.ui.visit import Visit

PER_PAGE = 30
LOOKED_AT = 50
"""Latest observations among which a version's own are looked for."""
MOST_PAIRS = 20
VERBS = ("promote", "rollback", "pin", "unpin", "canary", "stop-canary", "end-hold")


async def versions(visit: Visit) -> Response:
    """`/a/{agent}/versions?to=`: newest first, from version `to` down."""
    told, canary, overview = await asyncio.gather(
        visit.api.get(on(visit.agent, "/versions")),
        visit.api.get(on(visit.agent, "/canary")),
        visit.api.get(on(visit.agent, "/status"), seconds=3600),
    )
    rows = told["versions"]
    to = visit.number("to") or (rows[-1]["version"] if rows else 0)
    shown = [row for row in reversed(rows) if row["version"] <= to]
    return await visit.page(
        "versions.html",
        f"Versions of {visit.agent}",
        "versions",
        told=told,
        held=canary["held"],
        running=[_drawn(each) for each in canary["observations"] if each["state"] == "running"],
        rows=shown[:PER_PAGE],
        following=shown[PER_PAGE]["version"] if len(shown) > PER_PAGE else None,
        scores={row["version"]: row for row in overview["scores"]},
        graph=version_graph.graph(visit.agent, rows, told["live"]) if rows else None,
    )


async def version(visit: Visit) -> Response:
    """`/a/{agent}/versions/{version}`."""
    number = int(visit.request.path_params["version"])
    told, shown, listed, overview, canary, compared = await asyncio.gather(
        visit.api.get(on(visit.agent, f"/versions/{number}/lineage")),
        visit.api.get(on(visit.agent, f"/versions/{number}")),
        visit.api.get(on(visit.agent, "/versions")),
        visit.api.get(on(visit.agent, "/status"), seconds=3600),
        visit.api.get(on(visit.agent, "/canary"), limit=LOOKED_AT),
        visit.api.get(on(visit.agent, f"/versions/{number}/pairs"), limit=MOST_PAIRS),
    )
    scores = {row["version"]: row for row in overview["scores"]}
    return await visit.page(
        "version.html",
        f"{visit.agent}@v{number}",
        "versions",
        told=told,
        manifest=shown["manifest"],
        fault=shown["fault"],
        live=listed["live"],
        previous=listed["previous"],
        score=scores.get(number),
        parent_score=scores.get(told["parent"]),
        observations=[_drawn(each) for each in canary["observations"] if each["version"] == number],
        pairs=compared["pairs"],
        votes=compared["votes"],
    )


def _drawn(observation: Tree) -> Tree:
    """An observation with the chart of its course."""
    drawn = plots.course(observation.get("course", ()), observation["version"], observation["baseline"])
    return {**observation, "chart": drawn}


async def release(visit: Visit) -> Response:
    """A posted verb on a version."""
    form = await visit.form()
    verb, reason = form.get("verb", ""), form.get("reason") or None
    text = form.get("version", "")
    number = int(text) if text.isdecimal() and len(text) < 10 else None
    expected = int(form["expected"]) if form.get("expected", "").isdecimal() else None
    match verb:
        case "promote" if number is not None:
            path, body = "/promote", {"version": number, "expected": expected, "reason": reason}
        case "rollback":
            path, body = "/rollback", {"to": number, "expected": expected, "reason": reason}
        case "pin" | "unpin" if number is not None:
            path, body = f"/versions/{number}/{verb}", {"reason": reason}
        case "canary" if number is not None:
            path, body = "/canary/start", {"version": number}
        case "stop-canary":
            path, body = "/canary/stop", {"kind": form.get("kind", "canary"), "reason": reason}
        case "end-hold":
            path, body = "/end-hold", {"reason": reason}
        case _:
            raise ApiError(400, f"expected one of {', '.join(VERBS)} and a version, got {verb[:80]!r}")
    told = await visit.api.post(on(visit.agent, path), body)
    page = f"versions/{number}" if number else "versions"
    return visit.go(visit.path(page), str(told["status"]))
