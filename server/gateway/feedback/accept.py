"""`POST /v1/feedback`, `/v1/feedback/batch`, `/v1/feedback/tokens`: appended like any other record, answered without
SQL.

A caller's own `id` makes the call idempotent. It is kept as a digest, because it may hold words, and the id of
feedback goes wherever the feedback is used. Ids of different keys or users never meet: each begins with theirs.
"""

import time
import uuid
from collections.abc import Sequence

import msgspec
from starlette.types import Receive, Scope, Send

from burnish.errors import JournalError, NotAllowed, RequestError
from burnish.keys import Scope as KeyScope
from burnish.records import Feedback, FeedbackSource, id_without_words
from burnish.server.gateway.access.keyring import Caller, secret_of
from burnish.server.gateway.feedback import vote_tokens
from burnish.server.gateway.feedback.parse import Opinion, decoded, kind_of, outcome_of, parse, parse_batch, rating_of
from burnish.server.gateway.http.asgi import headers_of, read_body, send_json
from burnish.server.gateway.labels import may_store
from burnish.server.gateway.state import State
from burnish.wire.redaction import redacted

PATH, BATCH_PATH, TOKENS_PATH = "/v1/feedback", "/v1/feedback/batch", "/v1/feedback/tokens"
MAX_BODY, MAX_BATCH_BODY, MAX_WISH = 4 * 2**20, 16 * 2**20, 16 * 1024


def voter(state: State, scope: Scope) -> Caller:
    """A key that may give feedback, or the key that a vote token speaks for."""
    given = secret_of(scope)
    if given.startswith(vote_tokens.PREFIX):
        return state.tokens.bearer(given)
    return state.keyring.require(scope, KeyScope.FEEDBACK, KeyScope.INFERENCE, KeyScope.OPERATOR)


async def answer(state: State, caller: Caller, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
    """Accept one piece of feedback. Answers 202 once it is written, or at once if it may not be."""
    opinion = parse(await read_body(receive, MAX_BODY))
    given = secret_of(scope)
    if given.startswith(vote_tokens.PREFIX):
        _check_grant(opinion, state.tokens.read(given))
    (accepted,) = await _append(state, scope, caller, [_feedback(opinion, caller)])
    await send_json(send, 202, accepted)


async def answer_batch(
    state: State, caller: Caller, scope: Scope, receive: Receive, send: Send, request_id: str
) -> None:
    """Accept a batch. Answers 202 once all of it is written."""
    opinions = parse_batch(await read_body(receive, MAX_BATCH_BODY))
    said = [_feedback(opinion, caller, f"feedback[{number}].") for number, opinion in enumerate(opinions)]
    await send_json(send, 202, {"feedback": await _append(state, scope, caller, said)})


async def answer_token(
    state: State, caller: Caller, scope: Scope, receive: Receive, send: Send, request_id: str
) -> None:
    """Make a vote token for a page. Answers 200."""
    wish: vote_tokens.Wish = decoded(_wish_decoder, await read_body(receive, MAX_WISH))
    made, expires_at = state.tokens.make(caller, wish, kind_of(wish.about))
    await send_json(send, 200, {"token": made, "expires_at": expires_at})


def _check_grant(opinion: Opinion, grant: vote_tokens.Grant) -> None:
    """Raises if a token's bearer names another target. The token's id replaces the caller's."""
    if (opinion.target, opinion.about) != (grant.target, grant.about):
        raise NotAllowed(
            f"target: this feedback token is for the {grant.about} {grant.target!r} only",
            param="target",
            code="wrong_target",
        )
    if opinion.id is not None:
        raise RequestError("id: a feedback token has an id of its own; leave it out", param="id", code="invalid_value")
    opinion.id = grant.nonce


def _feedback(opinion: Opinion, caller: Caller, place: str = "") -> Feedback:
    return Feedback(
        feedback_id=id_without_words(f"{caller.feedback_prefix}{opinion.id or uuid.uuid4().hex}"),
        target=opinion.target,
        tenant=caller.tenant,
        key_id=caller.key_id,
        source=_source(opinion, caller, place),
        created_at=time.time(),
        rating=rating_of(opinion.rating),
        comment=opinion.comment,
        correction=opinion.correction,
        about=kind_of(opinion.about),
        score=opinion.score,
        outcome=outcome_of(opinion.outcome),
        label=opinion.label,
        demonstration=opinion.demonstration,
        user=caller.user,
    )


def source_of(caller: Caller) -> FeedbackSource:
    """Whom a key that may talk speaks for: a user with the scope `feedback`, the harness without."""
    return FeedbackSource.USER if caller.covers(KeyScope.FEEDBACK) else FeedbackSource.HARNESS


def _source(opinion: Opinion, caller: Caller, place: str) -> FeedbackSource:
    """Whose feedback it is. Raises NotAllowed (403) if the key may not speak for a verifier."""
    held = ", ".join(sorted(caller.scopes)) or "none"
    if opinion.source is not None:
        if not caller.covers(KeyScope.OPERATOR):
            raise NotAllowed(
                f"{place}source: a verifier's word needs a key with the scope operator, this one has {held}",
                param=f"{place}source",
                code="wrong_scope",
            )
        return FeedbackSource.VERIFIER
    if caller.covers(KeyScope.FEEDBACK) or caller.covers(KeyScope.INFERENCE):
        return source_of(caller)
    raise NotAllowed(
        f'{place}source: a key with the scope {held} speaks for a verifier only; say `"source": "verifier"`, '
        "or use a key with the scope feedback",
        param=f"{place}source",
        code="wrong_scope",
    )


async def _append(state: State, scope: Scope, caller: Caller, said: Sequence[Feedback]) -> list[dict[str, str]]:
    """Store feedback, unless its request, key or user opted out of recording. Returns the answers."""
    if not may_store(headers_of(scope), caller, state.routes.current()):
        return [_answer(each, "unrecorded") for each in said]
    if state.settings.journal.redact:  # for all agents: it is not known yet whose reply this is about
        said = [redacted(each) for each in said]  # type: ignore[misc]
    if not state.recorder.append_all(said):
        raise JournalError("the feedback cannot be stored: the disk is full; please try again later")
    await state.recorder.durable()
    return [_answer(each, "pending") for each in said]


def _answer(feedback: Feedback, status: str) -> dict[str, str]:
    return {"id": feedback.feedback_id, "target": feedback.target, "about": feedback.about.value, "status": status}


_wish_decoder = msgspec.json.Decoder(vote_tokens.Wish)
