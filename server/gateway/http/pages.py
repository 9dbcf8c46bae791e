"""Headers that tell browsers what an answer may do: it is what it says it is, and a page runs its own scripts alone.

The one page is FastAPI's `/docs`. It loads Swagger UI from a CDN and has one script of its own, which is allowed by its
hash.
"""

import base64
import hashlib
import re

from starlette.types import Message, Send

ALWAYS = ((b"x-content-type-options", b"nosniff"),)
"""For every answer."""
_CDN = "https://cdn.jsdelivr.net"
_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_PAGE = (
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


def guarded(send: Send) -> Send:
    """`send` for a page: its first message waits for the first piece of the body, whose scripts its policy names."""
    start: Message | None = None

    async def reply(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            start = message
            return
        if start is not None:
            policy = (b"content-security-policy", policy_of(message.get("body", b"")).encode())
            await send({**start, "headers": [*start.get("headers", ()), *_PAGE, policy]})
            start = None
        await send(message)

    return reply


def policy_of(page: bytes) -> str:
    """The content security policy of a page with these scripts."""
    digests = (base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _SCRIPT.findall(page))
    own = "".join(f" 'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {_CDN}{own}; style-src {_CDN} 'unsafe-inline'; "
        "img-src 'self' data: https://fastapi.tiangolo.com; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
