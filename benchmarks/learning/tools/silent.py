"""A judge that always abstains, as a server: rewards then come only from programs and users.

If a user's comment names a tool (`hinting.py`), it writes the comment down as a hint, with a verdict of 0, which adds
nothing to a reward.

The judge cannot be switched off, and the sandbox's judge reads a tool's failure off its result. With it, no arm would
be outcome-only.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from benchmarks.learning.tools.hinting import said_in

ABSTAINS = "VERDICT: abstain\nHINT: none"


@asynccontextmanager
async def running() -> AsyncIterator[str]:
    """A running server. Yields its URL."""
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/v1/chat/completions", _answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def _answer(request: web.Request) -> web.Response:
    asked = await request.json()
    hint = said_in(str(asked["messages"][-1]["content"]))
    message = {"role": "assistant", "content": f"VERDICT: 0\nHINT: {hint}" if hint else ABSTAINS}
    choices = [{"index": i, "message": message, "finish_reason": "stop"} for i in range(asked.get("n") or 1)]
    return web.json_response({"id": "silent", "object": "chat.completion", "model": asked["model"], "choices": choices})
