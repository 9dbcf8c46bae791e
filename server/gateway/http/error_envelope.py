"""The one place where an exception becomes a status code and an OpenAI error envelope.

A 4xx says what was wrong and how to fix it. A 503 says when to come back. A 500 gives the request id to look for in the
log and no internals.
"""

import math
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from burnish.errors import (
    AdapterError,
    BurnishError,
    Conflict,
    EngineError,
    EngineUnavailable,
    JournalError,
    JournalUnavailable,
    NotAllowed,
    NotFound,
    Overloaded,
    RateLimited,
    RequestError,
    TableError,
)

UNAUTHENTICATED = frozenset({"missing_api_key", "invalid_api_key", "invalid_token", "expired_token", "revoked_token"})
TOO_LARGE = "request_too_large"
WRONG_METHOD = "method_not_allowed"
RETRY_AFTER = 2.0
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
}


def status_of(error: BaseException) -> int:
    """The HTTP status for `error`."""
    match error:
        case NotAllowed():
            return 401 if error.code in UNAUTHENTICATED else 403
        case NotFound():
            return 404
        case Conflict() | AdapterError():  # a version with damaged files cannot be made live
            return 409
        case RequestError():
            return {TOO_LARGE: 413, WRONG_METHOD: 405}.get(error.code or "", 400)
        case RateLimited():
            return 429
        case EngineError() | JournalError() | TableError():
            return 503
        case _:
            return 500


def tree_of(error: BaseException, request_id: str) -> dict[str, Any]:
    """OpenAI's envelope for `error`."""
    status = status_of(error)
    if isinstance(error, BurnishError) and status != 500:
        message = str(error)
    else:
        message = f"the server failed to handle this request; its log has the reason under request id {request_id}"
    code = getattr(error, "code", None)
    match error:
        case RateLimited():
            code = "rate_limit_exceeded"
        case Overloaded():
            code = "overloaded"
        case EngineUnavailable():
            code = "engine_unavailable"
    kind = _TYPES.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": getattr(error, "param", None), "code": code}}


def reply_to(error: BaseException, request_id: str) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    """Status, body and extra headers of the answer to a request that failed with `error`."""
    status = status_of(error)
    headers: list[tuple[bytes, bytes]] = []
    if status in (429, 503):
        seconds = error.retry_after if isinstance(error, EngineUnavailable | RateLimited) else RETRY_AFTER
        headers.append((b"retry-after", str(max(1, math.ceil(seconds))).encode()))
        headers.append((b"retry-after-ms", str(max(1, math.ceil(seconds * 1000))).encode()))
    elif status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return status, msgspec.json.encode(tree_of(error, request_id)), headers


def frame_of(error: BaseException, request_id: str) -> bytes:
    """The same envelope as the last event of a stream that had already begun."""
    return b"data: " + msgspec.json.encode(tree_of(error, request_id)) + b"\n\n"


def install(app: Starlette) -> None:
    """Make a FastAPI or Starlette application answer errors in this envelope."""
    from fastapi.exceptions import RequestValidationError  # not needed on the hot path, so it is not loaded there
    from sqlalchemy.exc import OperationalError

    def answer(request: Request, error: Exception) -> Response:
        status, body, headers = reply_to(_translated(error), getattr(request.state, "request_id", ""))
        if isinstance(error, HTTPException):
            status = error.status_code
        extra = {name.decode(): value.decode() for name, value in headers}
        if isinstance(error, HTTPException):
            extra |= {name.lower(): value for name, value in (error.headers or {}).items()}  # a 405's `allow`
        return Response(body, status, media_type="application/json", headers=extra)

    for kind in (BurnishError, HTTPException, RequestValidationError, OperationalError, Exception):
        app.add_exception_handler(kind, answer)


def _translated(error: Exception) -> Exception:
    from fastapi.exceptions import RequestValidationError
    from sqlalchemy.exc import OperationalError

    if isinstance(error, OperationalError):
        return JournalUnavailable("the journal does not answer; please try again later")
    if isinstance(error, RequestValidationError):
        problem = error.errors()[0]
        field = ".".join(str(part) for part in problem["loc"][1:])
        return RequestError(f"{field or 'body'}: {problem['msg']}", param=field or None, code="invalid_value")
    if isinstance(error, HTTPException):
        kind = {401: NotAllowed, 403: NotAllowed, 404: NotFound, 409: Conflict}.get(error.status_code, RequestError)
        code = (
            "invalid_api_key"
            if error.status_code == 401
            else HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
        )
        return kind(str(error.detail), code=code)
    return error
