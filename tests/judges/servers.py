"""A judging model's HTTP server for tests: real sockets, scripted answers."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Answer = Callable[[dict[str, Any]], Awaitable[web.Response]]


def chat_response(texts: list[str | None]) -> web.Response:
    """An OpenAI chat completion with one choice per text."""
    choices = [
        {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        for i, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    head = {"id": "chatcmpl-x", "object": "chat.completion", "created": 1, "model": "m", "usage": usage}
    return web.json_response(head | {"choices": choices})


class Server:
    """Answers `/v1/chat/completions` with `answer`; keeps every body and its headers."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        return await self.answer(self.bodies[-1])


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Server]:
    server = Server(answer)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
