"""Learner: what each step did, its losses and monitors, rows used and dropped; and the judges."""

import asyncio

from starlette.responses import Response

from burnish.server.ui.admin_api import ApiError, Tree, on
from burnish.server.ui.charts import plots
from burnish.server.ui.visit import Visit

STEPS = 60
FIRST = ("loss", "kl_to_base/k3", "reward_mean", "entropy", "grad_norm", "seconds")
"""Metrics that are shown first."""
MOST_CHARTS = 12
COUNTS = ("n_votes", "n_requests", "n_prompt_tokens", "n_answer_tokens", "seconds")
ASKED_FOR = {
    "turns": "verdicts on replies",
    "pairs": "comparisons for the gate",
    "groups": "scores of shadow groups",
    "check": "the check of the judge",
}


async def learner(visit: Visit) -> Response:
    """`/a/{agent}/learner`."""
    told, overview = await asyncio.gather(
        visit.api.get(on(visit.agent, "/learner/runs"), limit=STEPS),
        visit.api.get(on(visit.agent, "/status"), seconds=3600),
    )
    steps = told["steps"]
    return await visit.page(
        "learner.html",
        f"Learner of {visit.agent}",
        "learner",
        steps=steps[:20],
        n_steps=len(steps),
        overview=overview,
        charts=charts(steps),
    )


def charts(steps: list[Tree]) -> list[tuple[str, object]]:
    """A chart of each metric over the versions: rows first, then those that people ask for, then the rest."""
    past = [step for step in reversed(steps) if step["ended_at"] is not None]
    bad = [step["version"] for step in past if step["outcome"] != "published"]
    found: list[tuple[str, list[tuple[int, float]]]] = [
        ("rows used", [(step["version"], step["n_rows"] - step["n_idle"]) for step in past]),
        ("rows without effect", [(step["version"], step["n_idle"]) for step in past]),
    ]
    names = {name for step in past for name, value in step["metrics"].items() if isinstance(value, int | float)}
    for name in sorted(names, key=_rank):
        points = [(step["version"], float(step["metrics"][name])) for step in past if name in step["metrics"]]
        if len({value for _, value in points}) > 1:
            found.append((name, points))
    return [(name, plots.series(name, points, bad)) for name, points in found[:MOST_CHARTS] if points]


def _rank(name: str) -> tuple[int, str]:
    """Where a metric stands: by its place in `FIRST`, else behind."""
    return (FIRST.index(name) if name in FIRST else len(FIRST), name)


async def step(visit: Visit) -> Response:
    """`/a/{agent}/learner/{version}`."""
    number = int(visit.request.path_params["version"])
    told = await visit.api.get(on(visit.agent, f"/learner/runs/{number}"))
    return await visit.page("step.html", f"Step to v{number}", "learner", told=told)


async def change(visit: Visit) -> Response:
    """A posted verb: pause, resume or step."""
    form = await visit.form()
    verb = form.get("verb", "")
    if verb not in ("pause", "resume", "step"):
        raise ApiError(400, f"expected pause, resume or step, got {verb[:80]!r}")
    told = await visit.api.post(on(visit.agent, f"/learner/{verb}"), {"reason": form.get("reason") or None})
    return visit.go(visit.path("learner"), str(told["status"]))


async def judges(visit: Visit) -> Response:
    """`/a/{agent}/judges`."""
    told = await visit.api.get(on(visit.agent, "/judges"))
    sums: Tree = {"totals": summed(told["costs"], "model", "purpose"), "days": summed(told["costs"], "day")}
    return await visit.page("judges.html", "Judges", "judges", told=told, asked_for=ASKED_FOR, **sums)


def summed(costs: list[Tree], *by: str) -> list[Tree]:
    """The costs added up for each combination of the columns `by`, in their order."""
    sums: dict[tuple[str, ...], Tree] = {}
    for row in costs:
        total = sums.setdefault(tuple(row[name] for name in by), {name: row[name] for name in by})
        for name in COUNTS:
            total[name] = total.get(name, 0) + row[name]
    return list(sums.values())
