"""Feedback: the inbox of what people said, saying something oneself, and the queue of turns to label."""

import asyncio

from starlette.responses import Response

from burnish.server.ui.admin_api import ApiError, Tree, on, segment
from burnish.server.ui.charts import plots
from burnish.server.ui.visit import Visit, split

LIMIT = 30
LOOKS = 10
"""Calls of the API after which a page asks before it looks further back."""
KINDS = (
    ("", "everything"),
    ("rating", "ratings"),
    ("comment", "comments"),
    ("correction", "corrections"),
    ("demonstration", "demonstrations"),
)
WHY = (
    ("abstained", "the judge abstained"),
    ("disagreed", "its votes disagreed"),
    ("sample", "a random sample"),
    ("second", "a second opinion"),
)
RATINGS = {"up": 1.0, "down": -1.0, "unsure": 0.0}


async def inbox(visit: Visit) -> Response:
    """`/a/{agent}/feedback?said=&before=`."""
    said = visit.asked("said")
    listed, told = await asyncio.gather(
        _listed(visit, "/feedback", "feedback", LIMIT, said=said), visit.api.get(on(visit.agent, "/status"))
    )
    rated = [row for row in told["scores"] if row["by_people"]["n"]]
    chart = plots.scores(told["scores"], told["aliases"].get("live"), "by_people") if rated else None
    found, following = listed
    options: Tree = {"said": said, "kinds": KINDS, "chart": chart, "rated": rated}
    return await visit.page(
        "feedback.html", f"Feedback on {visit.agent}", "feedback", found=found, following=following, **options
    )


async def labels(visit: Visit) -> Response:
    """`/a/{agent}/labels?why=&before=`: one turn at a time."""
    why = visit.asked("why") or WHY[0][0]
    found, following = await _listed(visit, "/judges/label", "turns", 2, why=why)
    turn = found[0] if found else None
    skip = f"{turn['ended_at']!r}:{turn['turn']}" if turn else None
    told = await visit.api.get(f"/admin/turns/{segment(turn['turn'])}") if turn else None
    options: Tree = {"why": why, "reasons": WHY, "turn": turn, "told": told, "skip": skip, "following": following}
    return await visit.page("labels.html", "Label turns", "labels", **options)


async def say(visit: Visit) -> Response:
    """A posted rating, comment or correction. `back` is the page to return to."""
    form = await visit.form()
    rating = form.get("rating")
    if rating is not None and rating not in RATINGS:
        raise ApiError(400, f"rating: expected one of {', '.join(RATINGS)}, got {rating[:80]!r}")
    correction = form.get("correction") or None
    if correction == form.get("was"):
        correction = None  # the field was filled in beforehand, and nobody has changed it
    if rating is None and correction is None and not form.get("comment"):
        raise ApiError(400, "nothing was said: expected a rating, a comment or a changed reply")
    body = {
        "target": form.get("target", ""),
        "rating": RATINGS[rating] if rating else None,
        "comment": form.get("comment") or None,
        "correction": correction,
    }
    await visit.api.post("/v1/feedback", body)
    back = split(form.get("back", ""))
    path = back.path if back.path.startswith("/a/") else visit.path("feedback")
    return visit.go(path + (f"?{back.query}" if back.query else ""), "Recorded. It counts within seconds.")


async def _listed(visit: Visit, path: str, key: str, limit: int, **query: str) -> tuple[list[Tree], str | None]:
    """Up to `limit` entries of a list that may have to be asked for several times, and where it goes on."""
    found: list[Tree] = []
    before: str | None = visit.asked("before") or None
    for _ in range(LOOKS):
        told = await visit.api.get(on(visit.agent, path), before=before, limit=limit - len(found), **query)
        found += told[key]
        before = told["next"]
        if before is None or len(found) >= limit:
            break
    return found, before
