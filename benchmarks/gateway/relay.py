"""The lower limit of cost for a Python gateway: a raw ASGI application that only passes bytes on."""

import argparse

import aiohttp
import uvicorn
from starlette.types import Message, Receive, Scope, Send


class Relay:
    """Relays every request to `upstream`, body and answer unchanged."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
            )
        parts: list[bytes] = []
        while True:
            message: Message = await receive()
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                break
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        url = self._upstream + scope["path"]
        async with self._session.post(url, data=body, headers={"content-type": "application/json"}) as response:
            kind = response.headers["content-type"].encode()
            if kind.startswith(b"text/event-stream"):
                await send(
                    {"type": "http.response.start", "status": response.status, "headers": [(b"content-type", kind)]}
                )
                async for piece in response.content.iter_any():
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            answer = await response.read()
        headers = [(b"content-type", kind), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer, "more_body": False})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True)
    given = parser.parse_args()
    uvicorn.run(
        Relay(given.upstream),
        host="127.0.0.1",
        port=given.port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=2048,
        timeout_keep_alive=75,
    )


if __name__ == "__main__":
    main()
