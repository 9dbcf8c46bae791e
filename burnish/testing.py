"""A stand-in for vLLM: a small real HTTP server in its wire shape, for tests and for trying a set-up without a model.

Deterministic: replies come from a script, a token is a byte of UTF-8, a log-prob follows from model and token. It can be slow,
fail and die on demand. `tests/contracts/test_engine_wire.py` holds it to the shape of the real server.
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

EOS = 256
Tree = dict[str, Any]


class Failure(StrEnum):
    """What the stub does instead of answering chat requests."""

    REFUSE = "refuse"  # 500 before the first byte
    FULL = "full"  # 503, the queue is full
    CUT = "cut"  # the connection breaks in mid-stream
    ERROR_EVENT = "error_event"  # an `error` event in mid-stream, then [DONE]


@dataclass(frozen=True, slots=True)
class Scripted:
    """One reply. `tool_calls` are (name, arguments as JSON text); `logprobs` overrides the made-up ones, None leaves one out."""

    content: str = ""
    tool_calls: Sequence[tuple[str, str]] = ()
    finish_reason: str | None = None
    logprobs: Sequence[float | None] | None = None
    reasoning: str = ""

    @property
    def text(self) -> str:
        """What was sampled, in hermes form."""
        calls = [
            f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>' for name, arguments in self.tool_calls
        ]
        thought = f"<think>{self.reasoning}</think>" if self.reasoning else ""
        return thought + self.content + "\n".join(calls)

    @property
    def token_ids(self) -> list[int]:
        return [*self.text.encode(), EOS]

    @property
    def ending(self) -> str:
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")


Script = Callable[[Tree, int], Scripted | str] | Sequence[Scripted | str]


def logprob_of(model: str, token: int) -> float:
    """The stub's log-prob of `token` under `model`: another one for every model."""
    return -0.25 - ((token * 31 + sum(model.encode()) * 7) % 97) / 97


@dataclass
class StubEngine:
    """The server. Use it as a context manager; `url` is there while it runs, `requests` keeps every chat body.

    `replies` is a list that is gone through again and again, or a function of (body, choice). `score` gives the prompt
    log-probs of /v1/completions.
    """

    replies: Script = ("hello",)
    base_name: str = "base"
    token_delay: float = 0.0
    api_key: str = ""
    failure: Failure | None = None
    needs_loaded: bool = True
    score: Callable[[str, Sequence[int]], Sequence[float]] = lambda model, ids: [logprob_of(model, token) for token in ids]
    port: int = 0
    url: str = ""
    requests: list[Tree] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    loaded: dict[str, str] = field(default_factory=dict)
    n_aborted: int = 0
    _n_replies: int = 0

    def __enter__(self) -> "StubEngine":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen on loopback, in a thread of its own, on `port` (0 takes a free one, kept for later starts)."""
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
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/load_lora_adapter", self._load)
        app.router.add_post("/v1/unload_lora_adapter", self._unload)
        app.router.add_get("/health", self._health)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port)
        await site.start()
        self.port = runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"
        started.set()
        await self._end.wait()
        if runner.server is not None:
            for connection in list(runner.server.connections):
                if connection.transport is not None:
                    connection.transport.abort()
        await runner.cleanup()

    @web.middleware
    async def _check_key(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if (
            self.api_key
            and request.path.startswith("/v1/")
            and request.headers.get("authorization") != f"Bearer {self.api_key}"
        ):
            return web.json_response({"error": "Unauthorized"}, status=401)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body: Tree = await request.json()
        self.requests.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if self.failure is Failure.REFUSE:
            return _error(500, "InternalServerError", "scripted failure")
        if self.failure is Failure.FULL:
            return _error(503, "ServiceUnavailable", "too many queued requests")
        if self.needs_loaded and body["model"] != self.base_name and body["model"] not in self.loaded:
            return _error(404, "NotFoundError", f"The model `{body['model']}` does not exist.", param="model")
        if not isinstance(body.get("temperature", 1.0), int | float):
            return _error(400, "Bad Request", "temperature: Input should be a valid number", param="body.temperature")
        response_id = f"chatcmpl-{request.headers.get('x-request-id') or uuid.uuid4().hex[:16]}"
        replies = [self._next(body, choice) for choice in range(body.get("n") or 1)]
        head = {"id": response_id, "created": int(time.time()), "model": body["model"]}
        try:
            if body.get("stream"):
                return await self._stream(request, body, head, replies)
            await asyncio.sleep(self.token_delay * max(len(reply.token_ids) for reply in replies))
            if self.failure is Failure.CUT and request.transport is not None:
                request.transport.abort()
            return web.json_response(_whole(body, head, replies))
        except (asyncio.CancelledError, ConnectionError):
            self.n_aborted += 1
            raise

    def _next(self, body: Tree, choice: int) -> Scripted:
        if callable(self.replies):
            reply = self.replies(body, choice)
        else:
            reply = self.replies[self._n_replies % len(self.replies)]
            self._n_replies += 1
        return Scripted(reply) if isinstance(reply, str) else reply

    async def _stream(self, request: web.Request, body: Tree, head: Tree, replies: Sequence[Scripted]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        n_sent = 0
        async for chunk in _chunks(body, head | {"object": "chat.completion.chunk"}, replies, self.token_delay):
            if n_sent >= 3 and self.failure is Failure.CUT and request.transport is not None:
                request.transport.abort()
            if n_sent >= 3 and self.failure is Failure.ERROR_EVENT:
                chunk = {"error": {"message": "EngineCore died", "type": "InternalServerError", "param": None, "code": 500}}
            await response.write(b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n")
            n_sent += 1
            if "error" in chunk:
                break
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _complete(self, request: web.Request) -> web.Response:
        body: Tree = await request.json()
        prompt = list(body["prompt"].encode()) if isinstance(body["prompt"], str) else list(body["prompt"])
        values = [float(value) for value in self.score(body["model"], prompt)]
        scored = [
            {str(token): {"logprob": value, "rank": 1, "decoded_token": _text(token)}}
            for token, value in zip(prompt, values, strict=True)
        ]
        token = ord("x")
        logprob = logprob_of(body["model"], token)
        wants_ids = bool(body.get("return_token_ids"))
        choice = {
            "index": 0,
            "text": "x",
            "logprobs": _completion_logprobs(token, logprob) if body.get("logprobs") is not None else None,
            "finish_reason": "length",
            "stop_reason": None,
            "token_ids": [token] if wants_ids else None,
            "prompt_logprobs": [None, *scored[1:]] if body.get("prompt_logprobs") is not None else None,
            "prompt_token_ids": prompt if wants_ids else None,
            "routed_experts": None,
        }
        tree = {
            "id": f"cmpl-{uuid.uuid4().hex[:16]}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": body["model"],
        }
        return web.json_response(tree | {"choices": [choice], "usage": _whole_usage(len(prompt), 1), **_TAIL})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body: Tree = await request.json()
        self.requests.append(body)
        ids = prompt_ids(body)
        return web.json_response({"count": len(ids), "max_model_len": 2048, "tokens": ids, "token_strs": None})

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

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()


_FINGERPRINT = {"system_fingerprint": "vllm-stub"}
_TAIL: Tree = _FINGERPRINT | {
    "service_tier": None,
    "kv_transfer_params": None,
    "ec_transfer_params": None,
    "metrics": None,
}


def prompt_ids(body: Tree) -> list[int]:
    """The stub's prompt: the bytes of every role and content."""
    return list("".join(f"{message['role']}\n{message.get('content') or ''}\n" for message in body["messages"]).encode())


def _error(status: int, kind: str, message: str, param: str | None = None) -> web.Response:
    return web.json_response({"error": {"message": message, "type": kind, "param": param, "code": status}}, status=status)


def _text(token: int) -> str:
    return "<eos>" if token == EOS else bytes([token]).decode("utf-8", "replace")


def _usage(n_prompt: int, n_sampled: int) -> Tree:
    return {"prompt_tokens": n_prompt, "total_tokens": n_prompt + n_sampled, "completion_tokens": n_sampled}


def _whole_usage(n_prompt: int, n_sampled: int) -> Tree:
    return _usage(n_prompt, n_sampled) | {"prompt_tokens_details": None, "completion_tokens_details": None}


def _completion_logprobs(token: int, logprob: float) -> Tree:
    word = _text(token)
    return {"text_offset": [0], "token_logprobs": [logprob], "tokens": [word], "top_logprobs": [{word: logprob}]}


def _entry(body: Tree, reply: Scripted, position: int) -> Tree:
    """One sampled token's element of `logprobs.content`."""
    token = reply.token_ids[position]
    value = logprob_of(body["model"], token) if reply.logprobs is None else reply.logprobs[position]
    word = {"token": _text(token), "logprob": value, "bytes": list(_text(token).encode())}
    if value is None:
        del word["logprob"]
    return word | {"top_logprobs": [dict(word)] * (body.get("top_logprobs") or 0)}


def _whole(body: Tree, head: Tree, replies: Sequence[Scripted]) -> Tree:
    """A response that is not streamed."""
    choices = []
    for index, reply in enumerate(replies):
        nothing = {"refusal": None, "annotations": None, "audio": None, "function_call": None}
        message: Tree = {"role": "assistant", "content": reply.content or (None if reply.tool_calls else ""), **nothing}
        if reply.tool_calls:
            message["tool_calls"] = [
                {
                    "id": f"chatcmpl-tool-{uuid.uuid4().hex[:16]}",
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                for name, arguments in reply.tool_calls
            ]
        entries = [_entry(body, reply, position) for position in range(len(reply.token_ids))]
        choices.append(
            {
                "index": index,
                "message": message | {"reasoning": reply.reasoning or None},
                "logprobs": {"content": entries} if body.get("logprobs") else None,
                "finish_reason": reply.ending,
                "stop_reason": None,
                "token_ids": reply.token_ids if body.get("return_token_ids") else None,
                "routed_experts": None,
            }
        )
    ids = prompt_ids(body)
    tree: Tree = head | {"object": "chat.completion", "choices": choices, **_TAIL}
    tree["usage"] = _whole_usage(len(ids), sum(len(reply.token_ids) for reply in replies))
    return tree | {
        "prompt_logprobs": None,
        "prompt_text": None,
        "prompt_token_ids": ids if body.get("return_token_ids") else None,
    }


async def _chunks(body: Tree, head: Tree, replies: Sequence[Scripted], delay: float) -> AsyncIterator[Tree]:
    """A stream's chunks: roles first, then one token of every choice in turn, the end of a choice on its last token."""
    ids = prompt_ids(body)
    wants_usage = (body.get("stream_options") or {}).get("include_usage")
    wants_ids, wants_logprobs = bool(body.get("return_token_ids")), bool(body.get("logprobs"))
    for index in range(len(replies)):
        opening = {"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        yield head | {"choices": [opening], "prompt_token_ids": ids if wants_ids else None, "prompt_text": None}
    plans = [_deltas(reply) for reply in replies]
    for position in range(max(len(plan) for plan in plans)):
        await asyncio.sleep(delay)
        for index, (reply, plan) in enumerate(zip(replies, plans, strict=True)):
            if position >= len(plan):
                continue
            is_last = position == len(plan) - 1
            if not (plan[position] or is_last or wants_ids or wants_logprobs):
                continue
            choice: Tree = {"index": index, "delta": plan[position], "logprobs": None, "finish_reason": None}
            if wants_logprobs:
                choice["logprobs"] = {"content": [_entry(body, reply, position)]}
            if is_last:
                choice |= {"finish_reason": reply.ending, "stop_reason": None}
            choice["token_ids"] = [reply.token_ids[position]] if wants_ids else None
            ends_here = is_last and not wants_usage
            yield head | {"choices": [choice]} | (_FINGERPRINT if ends_here else {})
    if wants_usage:
        usage = _usage(len(ids), sum(len(reply.token_ids) for reply in replies))
        yield head | {"choices": [], "usage": usage} | _FINGERPRINT


def _deltas(reply: Scripted) -> list[Tree]:
    """What each token adds: text as its characters complete, tool calls withheld until they are whole, nothing for the end."""
    deltas: list[Tree] = [{} for _ in reply.token_ids]
    at = len("<think>") if reply.reasoning else 0
    for character in reply.reasoning:
        at += len(character.encode())
        deltas[at - 1] = {"reasoning": character}
    at += len("</think>") if reply.reasoning else 0
    for character in reply.content:
        at += len(character.encode())
        deltas[at - 1] = {"content": character}
    for index, (name, arguments) in enumerate(reply.tool_calls):
        call_id = f"chatcmpl-tool-{uuid.uuid4().hex[:16]}"
        at += 12 + index  # somewhere inside this call's text
        deltas[at] = {
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "index": index, "function": {"name": name}}],
        }
        for piece in (arguments[:2], arguments[2:]):
            at += 1
            deltas[at] = {"content": None, "tool_calls": [{"index": index, "function": {"arguments": piece}}]}
    return deltas
