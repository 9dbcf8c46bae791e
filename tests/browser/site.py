"""An application as somebody would build it: its server asks the agent and makes a vote token, its page shows reply and
thumbs.

It runs on an origin of its own, with the snippet of docs/widget/ as it stands there.
"""

import html
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import openai

SNIPPET = Path(__file__).resolve().parents[2] / "docs" / "widget" / "thumbs.html"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The origin under which the files in `folder` are served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def ask(gateway: str, key: str, words: str) -> tuple[str, str]:
    """A reply's id and its text."""
    with openai.OpenAI(base_url=f"{gateway}/v1", api_key=key, max_retries=0) as client:
        reply = client.chat.completions.create(model="agent", messages=[{"role": "user", "content": words}])
    return reply.id, reply.choices[0].message.content or ""


def vote_token(gateway: str, key: str, target: str) -> str:
    body = {"target": target, "ttl_seconds": 3600}
    answer = httpx.post(f"{gateway}/v1/feedback/tokens", json=body, headers={"authorization": f"Bearer {key}"})
    return str(answer.raise_for_status().json()["token"])


def page(gateway: str, target: str, token: str, reply: str) -> str:
    """The page's HTML."""
    snippet = SNIPPET.read_text(encoding="utf-8")
    for name, value in (("GATEWAY", gateway), ("TARGET", target), ("TOKEN", token)):
        assert snippet.count(f'="{name}"') == 1, name
        snippet = snippet.replace(f'="{name}"', f'="{html.escape(value)}"')
    head = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>An agent</title></head>'
    return (
        f'{head}<body style="font-family: sans-serif; margin: 2rem"><p>{html.escape(reply)}</p>{snippet}</body></html>'
    )
