"""A command is answered by the gateway itself, in the caller's dialect, and recorded for the ingester.

The record holds the conversation up to its last reply. Only the ingester knows which recorded reply that is
(server/ingest/feedback.py), so nobody waits for SQL here. The rating counts as one that is sent to `POST /v1/feedback`
with the same key: only a key with the scope `feedback` speaks for a user.
"""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from burnish.records import FeedbackSource, Interaction
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.call import Call, Renderer
from burnish.server.gateway.feedback.accept import source_of
from burnish.server.gateway.feedback.commands import BAD, GOOD, MARK, UNDO, Command
from burnish.server.gateway.feedback.parse import MAX_CHARACTERS
from burnish.server.gateway.labels import Labels
from burnish.server.gateway.routing import Target
from burnish.wire import chunks

SAID = {
    GOOD: "Noted: the last reply was good.",
    BAD: "Noted: the last reply was bad.",
    UNDO: "The rating of the last reply is taken back.",
}
NO_REPLY = "There is no reply to rate yet."
UNRECORDED = "This conversation is not recorded, so its replies cannot be rated."
NOT_STORED = "The rating could not be stored: the disk is full."
DOES_NOT_COUNT = "It does not count as a user's, because this key lacks the scope feedback."


def record_of(
    command: Command,
    conversation: Sequence[dict[str, Any]],
    call: Call,
    labels: Labels,
    target: Target,
    caller: Caller,
    request_id: str,
    route: str,
) -> Interaction:
    """The record of a command. It has no reply and is never filed as a turn."""
    now = time.time()
    remark = {
        "prefix": caller.feedback_prefix,
        "source": source_of(caller).value,
        "rating": command.rating,
        "comment": command.comment and command.comment[: MAX_CHARACTERS["comment"]],
    }
    return Interaction(
        interaction_id=f"remark-{request_id}",
        request_id=request_id,
        agent=target.agent,
        version=target.version,
        tenant=caller.tenant,
        key_id=caller.key_id,
        messages=conversation,
        reply={},
        started_at=now,
        ended_at=now,
        finish_reason=None,
        sampling=call.sampling,
        user=call.user,
        quoted_user=call.quoted_user,
        quoted_session=labels.session_id,
        quoted_by=labels.quoted_by,
        may_train=False,
        route=route,
        remark=remark,
    )


def answer_to(command: Command, caller: Caller) -> str:
    """What the client reads once the command is recorded."""
    counts = source_of(caller) is FeedbackSource.USER or command.name == UNDO
    return SAID[command.name] if counts else f"{SAID[command.name]} {DOES_NOT_COUNT}"


def rendered(text: str, renderer: Renderer, *, is_stream: bool, request_id: str) -> bytes:
    """The whole body, or all events, of an answer with `text` in the caller's dialect."""
    head = {"id": f"chatcmpl-{request_id}", "created": int(time.time()), "model": "burnish"}
    usage = {"prompt_tokens": 0, "total_tokens": 0, "completion_tokens": 0}
    renderer.response_id(str(head["id"]))
    if not is_stream:
        message = {"role": "assistant", "content": MARK + text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop", "stop_reason": None}
        data = msgspec.json.encode(head | {"object": "chat.completion", "choices": [choice], "usage": usage})
        return renderer.whole(data, chunks.skim(data))
    deltas: list[tuple[dict[str, str], str | None]] = [
        ({"role": "assistant", "content": ""}, None),
        ({"content": MARK + text}, None),
        ({}, "stop"),
    ]
    choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": end} for delta, end in deltas]
    trees = [{"choices": [choice]} for choice in choices] + [{"choices": [], "usage": usage}]
    events = [msgspec.json.encode(head | {"object": "chat.completion.chunk"} | tree) for tree in trees]
    return b"".join([*(renderer.chunk(data, chunks.read(data)) for data in events), renderer.end()])
