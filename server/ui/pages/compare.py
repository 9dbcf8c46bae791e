"""Compare: one prompt, two versions side by side, blind until the vote. A vote is recorded as feedback.

The worse reply gets the better one as its correction, which is a pair for preference training. The better one gets no
rating, because it may be the better of two bad ones. A tie rates both as neutral, and `neither` both as bad.
"""

import json
from collections.abc import AsyncIterator

from starlette.responses import JSONResponse, Response, StreamingResponse

from burnish.server.ui.admin_api import ApiError, Tree, on
from burnish.server.ui.visit import Visit

MAX_TOKENS = 1024
ALIKE = {"tie": 0.0, "neither": -1.0}
"""The rating of both replies where none is better."""
MOST = 60
"""Most versions that can be chosen."""


async def compare(visit: Visit) -> Response:
    """`/a/{agent}/compare?a=&b=&prompt=`."""
    told = await visit.api.get(on(visit.agent, "/versions"))
    live = told["live"] or 0
    known = [
        0,
        *(row["version"] for row in told["versions"] if row["removed_at"] is None and row["state"] != "refused"),
    ]
    one, other = visit.number("a"), visit.number("b")
    chosen = (live if one is None else one, (told["previous"] or 0) if other is None else other)
    return await visit.page(
        "compare.html",
        "Compare two versions",
        "compare",
        known=known[-MOST:][::-1] + ([0] if len(known) > MOST else []),
        live=live,
        chosen=chosen,
        prompt=visit.asked("prompt")[:20_000],
        may_compare=visit.login.may("inference") and visit.login.may("feedback"),
    )


async def reply(visit: Visit) -> Response:
    """One reply, as JSON lines while it comes: `{"text": …}`, then `{"turn": …}` or `{"error": …}`."""
    form = await visit.form()
    version, prompt = form.get("version", ""), form.get("prompt", "")
    if not version.isdecimal() or not prompt:
        raise ApiError(400, "expected a version and a prompt")
    model = f"{visit.agent}@v{int(version)}"
    pieces = visit.api.chat(model, prompt, {"max_tokens": MAX_TOKENS})
    return StreamingResponse(_lines(pieces), media_type="application/x-ndjson")


async def _lines(pieces: AsyncIterator[Tree]) -> AsyncIterator[str]:
    try:
        async for piece in pieces:
            yield json.dumps(piece) + "\n"
    except ApiError as error:
        yield json.dumps({"error": error.message}) + "\n"


async def vote(visit: Visit) -> Response:
    """A vote on two replies: `better` and `worse` are turns, `text` is the better one's. With `both` they are equal:
    a `tie`, or `neither` is good.
    """
    form = await visit.form()
    better, worse, text = form.get("better", ""), form.get("worse", ""), form.get("text", "")
    both = form.get("both", "")
    if not better or not worse or both not in ("", *ALIKE):
        raise ApiError(400, f"expected the turns of both replies, and for both {' or '.join(ALIKE)} or nothing")
    said = feedback_of(better, worse, text, both)
    if not said:
        raise ApiError(400, "the better reply has no text, so it cannot be preferred; vote for a tie or for neither")
    await visit.api.post("/v1/feedback/batch", {"feedback": said})
    return JSONResponse({"recorded": len(said)})


def feedback_of(better: str, worse: str, text: str, both: str = "") -> list[Tree]:
    """The feedback that a vote is, as the parameters of `vote`. Empty if the better reply has no text."""
    if both:
        return [{"target": turn, "rating": ALIKE[both]} for turn in (better, worse)]
    return [{"target": worse, "correction": text}] if text else []
