"""Overview: does the agent get better, what does learning do now and why not, and what needs a person."""

import asyncio

from starlette.responses import Response

from burnish.server.ui.admin_api import on
from burnish.server.ui.charts import plots
from burnish.server.ui.visit import Visit

SPANS = ((3600, "hour"), (86_400, "day"), (7 * 86_400, "week"), (30 * 86_400, "month"))
LATEST = 20
"""Replies that are shown. A page that is looked at again every five seconds shows all of up to four a second."""
FATES = (
    ("trained", "trained", "tone-good"),
    ("ready", "rated, waits for a step", "tone-wait"),
    ("waiting", "waits for a rating", "tone-none"),
    ("dropped", "kept out of training", "tone-bad"),
)


async def overview(visit: Visit) -> Response:
    """`/a/{agent}/overview?seconds=`."""
    seconds = visit.number("seconds") or 86_400
    told, latest = await asyncio.gather(
        visit.api.get(on(visit.agent, "/status"), seconds=seconds),
        visit.api.get(on(visit.agent, "/turns"), limit=LATEST),
    )
    live = told["aliases"].get("live")
    by_version = {row["version"]: row for row in told["scores"]}
    now = by_version.get(live)
    first = by_version.get(0)
    total = sum(sum(each["by_version"].values()) for each in told["traffic"])
    counts = told["latest"]["counts"]
    fates = [(name, word, kind, counts.get(name, 0)) for name, word, kind in FATES]
    return await visit.page(
        "overview.html",
        f"Overview of {visit.agent}",
        "overview",
        told=told,
        live=live,
        now=now,
        first=first if live else None,
        total=total,
        spans=SPANS,
        seconds=seconds,
        fates=fates,
        turns=latest["turns"],
        scores_chart=plots.scores(told["scores"], live) if told["scores"] else None,
        traffic_chart=plots.traffic(told["traffic"], seconds, live) if total else None,
        fates_chart=plots.whole([each[1:] for each in fates], "What became of the latest replies"),
    )
