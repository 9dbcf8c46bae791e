"""`POST /v1/feedback`, and `/v1/feedback/batch` for several: what somebody said about a reply, joined by response id.

It is appended like every other record. Whose word it is follows from the key, never from the body: the feedback scope speaks for a
user, a key that may only talk speaks for the harness, below the judge. A caller's own `id` makes the call idempotent; ids of
different keys never meet.
"""

import time
import uuid
from typing import Annotated, Any

import msgspec
from starlette.types import Receive, Scope, Send

from burnish.errors import JournalError, RequestError
from burnish.keys import Scope as KeyScope
from burnish.records import Feedback, FeedbackSource
from server.auth import Caller
from server.dialects.fields import explained
from server.state import State
from server.wire import read_body, send_json

PATH, BATCH_PATH = "/v1/feedback", "/v1/feedback/batch"
MAX_BODY = 2**20
MAX_BATCH, MAX_BATCH_BODY = 1000, 16 * 2**20
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_RATINGS = {"up": 1.0, "down": -1.0, True: 1.0, False: -1.0}


class Opinion(msgspec.Struct, forbid_unknown_fields=True):
    """The body. At least one of rating, comment and correction is given."""

    target: _Id
    rating: str | bool | float | None = None
    comment: str | None = None
    correction: str | None = None
    id: _Id | None = None


class Opinions(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a batch: all of it is looked at before any of it is written."""

    feedback: Annotated[list[Opinion], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


_decoder = msgspec.json.Decoder(Opinion)
_batch_decoder = msgspec.json.Decoder(Opinions)


async def answer(state: State, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
    """Accept one opinion: 202 once it is written."""
    caller = state.keyring.require(scope, KeyScope.FEEDBACK, KeyScope.INFERENCE)
    opinion = parse(await _body(state, scope, receive, MAX_BODY))
    await send_json(send, 202, _accept(state, _feedback(opinion, caller)))


async def answer_batch(state: State, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
    """Accept several: 202 once all are written."""
    caller = state.keyring.require(scope, KeyScope.FEEDBACK, KeyScope.INFERENCE)
    opinions = parse_batch(await _body(state, scope, receive, MAX_BATCH_BODY))
    await send_json(send, 202, {"feedback": [_accept(state, _feedback(opinion, caller)) for opinion in opinions]})


def parse(body: bytes) -> Opinion:
    """The opinion in `body`; raises RequestError naming the field at fault."""
    opinion: Opinion = _decoded(_decoder, body)
    _check(opinion, "")
    return opinion


def parse_batch(body: bytes) -> list[Opinion]:
    """The opinions in `body`; raises RequestError naming the place at fault, such as `feedback[3].rating`."""
    opinions: Opinions = _decoded(_batch_decoder, body)
    for number, opinion in enumerate(opinions.feedback):
        _check(opinion, f"feedback[{number}].")
    return opinions.feedback


async def _body(state: State, scope: Scope, receive: Receive, limit: int) -> bytes:
    return await read_body(scope, receive, min(limit, state.settings.gateway.max_body_bytes))


def _decoded(decoder: Any, body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise explained(error) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is not valid JSON: {error}", code="invalid_json") from error


def _check(opinion: Opinion, place: str) -> None:
    if opinion.rating is None and not opinion.comment and not opinion.correction:
        what = f"{place.removesuffix('.')}: " if place else ""
        raise RequestError(f"{what}nothing said: expected at least one of rating, comment, correction", code="invalid_value")
    rating_of(opinion.rating, f"{place}rating")


def _feedback(opinion: Opinion, caller: Caller) -> Feedback:
    return Feedback(
        feedback_id=f"{caller.key_id}:{opinion.id}" if opinion.id else f"fb-{uuid.uuid4().hex}",
        target=opinion.target,
        tenant=caller.tenant,
        key_id=caller.key_id,
        source=FeedbackSource.USER if caller.covers(KeyScope.FEEDBACK) else FeedbackSource.HARNESS,
        created_at=time.time(),
        rating=rating_of(opinion.rating),
        comment=opinion.comment,
        correction=opinion.correction,
    )


def _accept(state: State, feedback: Feedback) -> dict[str, str]:
    if not state.recorder.append(feedback):
        raise JournalError("the feedback cannot be stored: the disk is full; please try again later")
    return {"id": feedback.feedback_id, "target": feedback.target, "status": "accepted"}


def rating_of(given: Any, place: str = "rating") -> float | None:
    """A rating in [-1, 1]: thumbs as words or booleans, or the number itself."""
    if given is None or (isinstance(given, float | int) and not isinstance(given, bool) and -1.0 <= given <= 1.0):
        return None if given is None else float(given)
    if isinstance(given, str | bool) and given in _RATINGS:
        return _RATINGS[given]
    raise RequestError(
        f"{place}: got {given!r}, expected 'up', 'down' or a number in [-1, 1]", param=place, code="invalid_value"
    )
