"""Errors as Anthropic's clients read them. The status is decided in server/gateway/http/error_envelope.py.

A 503 becomes 529 `overloaded_error`: Anthropic has no 503, and its clients know 529 and come back after `retry-after`.
"""

from typing import Any

import msgspec

from burnish.server.gateway.call import Reply
from burnish.server.gateway.http import error_envelope
from burnish.server.gateway.http.sse import event_of

PATH = "/v1/messages"
OVERLOADED = 529
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    OVERLOADED: "overloaded_error",
}


def status_of(error: BaseException) -> int:
    """The HTTP status that a caller of the Messages API gets for `error`."""
    status = error_envelope.status_of(error)
    return OVERLOADED if status == 503 else status


def tree_of(error: BaseException, request_id: str) -> dict[str, Any]:
    """Anthropic's envelope. It has no place for the field at fault, so the messages begin with its name."""
    kind = _TYPES.get(status_of(error), "invalid_request_error")
    message = error_envelope.tree_of(error, request_id)["error"]["message"]
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}


def reply_to(error: BaseException, request_id: str) -> Reply:
    """Status, body and extra headers of the answer to a request that failed with `error`."""
    _, _, headers = error_envelope.reply_to(error, request_id)
    body = msgspec.json.encode(tree_of(error, request_id))
    return status_of(error), body, [*headers, (b"request-id", request_id.encode())]


def frame_of(error: BaseException, request_id: str) -> bytes:
    """The same envelope as the last event of a stream that had already begun."""
    return event_of(tree_of(error, request_id), "error")
