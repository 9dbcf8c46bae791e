"""The stub engine: a small real HTTP server in vLLM's wire shape.

It is deterministic: replies come from a list or a function, a token is a byte of UTF-8, and a log-prob follows from
model and token. It can be slow, fail and die on demand.
"""

import asyncio
import json
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from aiohttp import web

from burnish.testing import chat_wire, completions_wire
from burnish.testing.stub_reply import FULL, Played, Refusal, Scripted, Tree, logprob_of, play, prompt_ids

Headers = Mapping[str, str]
Replies = Callable[[Tree, int], Scripted | str] | Sequence[Scripted | str]


class Failure(StrEnum):
    """How the stub fails instead of answering."""

    REFUSE = "refuse"  # 500 before the first byte
    FULL = "full"  # 503, the queue is full
    CUT = "cut"  # the connection breaks in mid-stream
    ERROR_EVENT = "error_event"  # an `error` event in mid-stream, then [DONE]


_REFUSALS = {
    Failure.REFUSE: Refusal(),
    Failure.FULL: FULL,
}


@dataclass
class StubEngine:
    """The server. Use it as a context manager. `url` exists while it runs. `requests` keeps the body of every request
    for a reply, `headers` its headers. `n_running` counts the running replies, as /metrics reports.

    `replies` is a list that is repeated, or a function of (body, choice). `score` gives the prompt log-probs of
    /v1/completions.
    """

    replies: Replies = ("hello",)
    base_name: str = "base"
    token_delay: float = 0.0
    api_key: str = ""
    failure: Failure | None = None
    needs_loaded: bool = True
    score: Callable[[str, Sequence[int]], Sequence[float]] = lambda model, ids: [
        logprob_of(model, token) for token in ids
    ]
    max_model_len: int = 2048
    host: str = "127.0.0.1"
    port: int = 0
    url: str = ""
    requests: list[Tree] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    loaded: dict[str, str] = field(default_factory=dict)
    n_aborted: int = 0
    n_running: int = 0
    _n_replies: int = 0

    def __enter__(self) -> "StubEngine":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen on `host`, in a thread of its own, on `port` (0 takes a free one, kept for later starts)."""
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), name="stub-engine", daemon=True)
        self._thread.start()
        if not started.wait(10):
            raise RuntimeError("the stub engine did not start within 10 s")

    def stop(self) -> None:
        """Die like a killed process: every connection breaks."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(10)

    def _run(self, started: threading.Event) -> None:
        asyncio.run(self._serve(started))

    async def _serve(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        app = web.Application(client_max_size=2**30, middlewares=[self._check_key])
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/v1/embeddings", self._embed)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/detokenize", self._detokenize)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/load_lora_adapter", self._load)
        app.router.add_post("/v1/unload_lora_adapter", self._unload)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        self.add_routes(app)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.0)
        await runner.setup()
        site = web.TCPSite(runner, self.host, self.port)
        await site.start()
        self.port = runner.addresses[0][1]
        self.url = f"http://{self.host}:{self.port}"
        started.set()
        await self._end.wait()
        if runner.server is not None:
            for connection in list(runner.server.connections):
                if connection.transport is not None:
                    connection.transport.abort()
        await runner.cleanup()

    @web.middleware
    async def _check_key(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body: Tree = await request.json()
        n = body.get("n") or 1
        return await self._reply(request, body, n, "chatcmpl", _Chat(body))

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body: Tree = {"max_tokens": 16} | await request.json()
        prompts = completions_wire.prompts_of(body["prompt"])
        if body.get("prompt_logprobs") is not None:
            return self._score(body, prompts[0])
        n = (body.get("n") or 1) * len(prompts)
        return await self._reply(request, body, n, "cmpl", _Text(body, prompts))

    async def _reply(
        self, request: web.Request, body: Tree, n: int, prefix: str, shape: "_Shape"
    ) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append(body)
        self.headers.append(headers)
        plan = self._objection(body) or self.plan(body, headers, n)
        if isinstance(plan, Refusal):
            return await _refuse(request, plan)
        played = [play(reply, body) for reply in plan]
        self.began(headers, played)
        pause, hang = max(reply.pause for reply in plan), max(reply.hang for reply in plan)
        response_id = f"{prefix}-{headers.get('x-request-id') or uuid.uuid4().hex[:16]}"
        head = {"id": response_id, "created": int(time.time()), "model": body["model"]}
        was_heard = False
        self.n_running += n
        try:
            await asyncio.sleep(pause)
            if body.get("stream"):
                response = await self._stream(request, shape.chunks(head, played, self.token_delay), hang)
                was_heard = True
                return response
            await asyncio.sleep(self.token_delay * max(len(reply.token_ids) for reply in played))
            if self.failure is Failure.CUT and request.transport is not None:
                request.transport.abort()
            was_heard = True
            return web.json_response(shape.whole(head, played))
        except (asyncio.CancelledError, ConnectionError):
            self.n_aborted += 1
            raise
        finally:
            self.n_running -= n
            self.ended(headers, was_heard=was_heard)

    def plan(self, body: Tree, headers: Headers, n: int) -> list[Scripted] | Refusal:
        """The answer: `n` replies, or a refusal."""
        return [self._next(body, choice) for choice in range(n)]

    def began(self, headers: Headers, replies: list[Played]) -> None:
        """Called when a request is about to be answered."""

    def ended(self, headers: Headers, *, was_heard: bool) -> None:
        """Called when a request has been answered. `was_heard` is False if the client left before the end."""

    def add_routes(self, app: web.Application) -> None:
        """Further routes, beside vLLM's."""

    def _objection(self, body: Tree) -> Refusal | None:
        """The reason why a request cannot be answered at all. None if it can."""
        if self.failure in _REFUSALS:
            return _REFUSALS[self.failure]
        if self.needs_loaded and body["model"] != self.base_name and body["model"] not in self.loaded:
            return Refusal(404, "NotFoundError", f"The model `{body['model']}` does not exist.", param="model")
        messages = body.get("messages", [{"role": "user"}])
        if not all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages):
            return Refusal(400, "Bad Request", "messages: Input should be a valid message", param="body.messages")
        if not isinstance(body.get("temperature") or 1.0, int | float):
            return Refusal(400, "Bad Request", "temperature: Input should be a valid number", param="body.temperature")
        for name in ("max_tokens", "max_completion_tokens", "n"):
            if not isinstance(body.get(name) or 0, int):
                return Refusal(400, "Bad Request", f"{name}: Input should be a valid integer", param=f"body.{name}")
        return None

    def _next(self, body: Tree, choice: int) -> Scripted:
        if callable(self.replies):
            reply = self.replies(body, choice)
        else:
            reply = self.replies[self._n_replies % len(self.replies)]
            self._n_replies += 1
        return Scripted(reply) if isinstance(reply, str) else reply

    async def _stream(self, request: web.Request, chunks: AsyncIterator[Tree], hang: float) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        n_sent = 0
        async for chunk in chunks:
            if n_sent == 3:
                await asyncio.sleep(hang)
            if n_sent >= 3 and self.failure is Failure.CUT and request.transport is not None:
                request.transport.abort()
            if n_sent >= 3 and self.failure is Failure.ERROR_EVENT:
                chunk = {
                    "error": {"message": "EngineCore died", "type": "InternalServerError", "param": None, "code": 500}
                }
            await response.write(b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n")
            n_sent += 1
            if "error" in chunk:
                break
        await response.write(b"data: [DONE]\n\n")
        return response

    def _score(self, body: Tree, prompt: Sequence[int]) -> web.Response:
        played = play(Scripted("x"), body)
        head = {"id": f"cmpl-{uuid.uuid4().hex[:16]}", "created": int(time.time()), "model": body["model"]}
        tree = completions_wire.whole(body, head, [prompt], [played])
        choice = completions_wire.scored(tree["choices"][0], prompt, self.score(body["model"], prompt))
        return web.json_response(tree | {"choices": [choice]})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body: Tree = await request.json()
        self.requests.append(body)
        ids = prompt_ids(body) if "messages" in body else list(body["prompt"].encode())
        return web.json_response(
            {"count": len(ids), "max_model_len": self.max_model_len, "tokens": ids, "token_strs": None}
        )

    async def _detokenize(self, request: web.Request) -> web.Response:
        body: Tree = await request.json()
        return web.json_response({"prompt": bytes(token % 256 for token in body["tokens"]).decode(errors="replace")})

    async def _embed(self, request: web.Request) -> web.Response:
        body: Tree = await request.json()
        self.requests.append(body)
        inputs = completions_wire.prompts_of(body["input"])
        data = [
            {
                "index": index,
                "object": "embedding",
                "embedding": [logprob_of(body["model"], token) for token in ids[:8]],
            }
            for index, ids in enumerate(inputs)
        ]
        tree = {
            "id": f"embd-{uuid.uuid4().hex[:16]}",
            "object": "list",
            "created": int(time.time()),
            "model": body["model"],
        }
        return web.json_response(tree | {"data": data, "usage": chat_wire.whole_usage(sum(map(len, inputs)), 0)})

    async def _models(self, request: web.Request) -> web.Response:
        entry = {"object": "model", "created": int(time.time()), "owned_by": "vllm"}
        data = [{"id": self.base_name, **entry, "root": self.base_name, "parent": None}]
        data += [{"id": name, **entry, "root": path, "parent": self.base_name} for name, path in self.loaded.items()]
        return web.json_response({"object": "list", "data": data})

    async def _load(self, request: web.Request) -> web.Response:
        body: Tree = await request.json()
        name, path = body["lora_name"], body["lora_path"]
        if name in self.loaded or name == self.base_name:
            return _error(400, "InvalidUserInput", f"The lora adapter '{name}' has already been loaded.")
        if not await asyncio.to_thread(Path(path).exists):
            return _error(404, "NotFoundError", f"Loading lora {name} failed: No adapter found for {path}")
        self.loaded[name] = path
        return web.Response(text=f"Success: LoRA adapter '{name}' added successfully.")

    async def _unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        if self.loaded.pop(name, None) is None:
            return _error(404, "NotFoundError", f"The lora adapter '{name}' cannot be found.")
        return web.Response(text=f"Success: LoRA adapter '{name}' removed successfully.")

    async def _metrics(self, request: web.Request) -> web.Response:
        """Two of vLLM's gauges. Nothing ever waits here."""
        labels = f'{{engine="0",model_name="{self.base_name}"}}'
        gauges = {"running": float(self.n_running), "waiting": 0.0}
        return web.Response(text="".join(f"vllm:num_requests_{name}{labels} {n}\n" for name, n in gauges.items()))

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()


class _Chat:
    """A chat completion's JSON."""

    def __init__(self, body: Tree) -> None:
        self._body = body

    def whole(self, head: Tree, replies: Sequence[Played]) -> Tree:
        return chat_wire.whole(self._body, head, replies)

    def chunks(self, head: Tree, replies: Sequence[Played], delay: float) -> AsyncIterator[Tree]:
        return chat_wire.chunks(self._body, head, replies, delay)


class _Text:
    """A text completion's JSON."""

    def __init__(self, body: Tree, prompts: Sequence[Sequence[int]]) -> None:
        self._body, self._prompts = body, prompts

    def whole(self, head: Tree, replies: Sequence[Played]) -> Tree:
        return completions_wire.whole(self._body, head, self._prompts, replies)

    def chunks(self, head: Tree, replies: Sequence[Played], delay: float) -> AsyncIterator[Tree]:
        return completions_wire.chunks(self._body, head, self._prompts, replies, delay)


_Shape = _Chat | _Text


async def _refuse(request: web.Request, refusal: Refusal) -> web.Response:
    await asyncio.sleep(refusal.pause)
    if refusal.cut and request.transport is not None:
        request.transport.abort()
    return _error(refusal.status, refusal.kind, refusal.message, refusal.param)


def _error(status: int, kind: str, message: str, param: str | None = None) -> web.Response:
    return web.json_response(
        {"error": {"message": message, "type": kind, "param": param, "code": status}}, status=status
    )
