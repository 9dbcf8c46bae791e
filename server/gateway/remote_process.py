"""The process that asks a remote model through litellm. Its answers have the shape that the gateway knows from its
engine.

It is a process of its own, because litellm takes seconds to load and milliseconds for a call: in the gateway's event
loop every stream would feel it. It listens on loopback and asks for the engine's key, like the engine.
"""

import hmac
import os
from collections.abc import AsyncIterator
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from burnish.config import Settings
from burnish.errors import ConfigError, RequestError
from burnish.keys import engine_key
from burnish.server.bounds import BoundedProtocol
from burnish.server.gateway import passed_fields
from burnish.server.gateway.http.sse import event_of

log = structlog.get_logger(__name__)
DONE = b"data: [DONE]\n\n"
REPLY_SECONDS = 600.0
"""Seconds for one reply of the remote model."""


def remote_app(settings: Settings) -> FastAPI:
    """The application. litellm is loaded here, once."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.telemetry = False
    remote = settings.remote
    wanted = f"Bearer {engine_key(settings)}".encode()
    app = FastAPI(title="Burnish remote", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), wanted):
            return _error(401, "the gateway's key is wanted")
        try:
            body = passed_fields.kept_within(await request.json())
        except RequestError as error:
            return _error(400, str(error), error.param)
        response_id = f"chatcmpl-{request.headers.get('x-request-id', '')}"
        try:
            answer: Any = await litellm.acompletion(
                model=remote.model,
                api_base=remote.url or None,
                api_key=remote.api_key or None,
                timeout=REPLY_SECONDS,
                drop_params=True,
                num_retries=0,
                **body,
            )
        except Exception as error:  # litellm raises its own class for each vendor's errors; each has a status
            status: Any = getattr(error, "status_code", None)
            log.warning("the remote model refused", model=remote.model, status=status, error=type(error).__name__)
            if status in (400, 413, 422):
                return _error(status, str(error))
            return _error(503, "the remote model failed")
        if body.get("stream"):
            return StreamingResponse(_events(answer, response_id), media_type="text/event-stream")
        return JSONResponse(answer.model_dump(exclude_none=True) | {"id": response_id})

    return app


async def _events(answer: Any, response_id: str) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer:
            yield event_of(chunk.model_dump(exclude_none=True) | {"id": response_id})
    except Exception as error:  # as above; the stream has begun, so the error is an event
        log.warning("the remote model failed in mid-answer", error=type(error).__name__)
        yield event_of({"error": {"message": "the remote model failed", "type": "InternalServerError", "code": 500}})
    yield DONE


def run(settings: Settings) -> None:
    """Serve until told to stop. Raises ConfigError if no remote model is set."""
    if not settings.remote.model:
        raise ConfigError("remote.model is not set; there is no remote model to talk to")
    config = uvicorn.Config(
        remote_app(settings),
        host="127.0.0.1",
        port=settings.remote_port,
        log_config=None,
        access_log=False,
        ws="none",
        http=BoundedProtocol,
    )
    uvicorn.Server(config).run()


def _error(status: int, message: str, param: str | None = None) -> JSONResponse:
    tree = {"error": {"message": message, "type": "RemoteError", "param": param, "code": status}}
    return JSONResponse(tree, status_code=status)
