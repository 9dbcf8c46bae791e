"""Headers that tell browsers what an answer may do: it is what it says it is, and a page runs this server's own scripts
and nothing else.
"""

from starlette.types import Message, Send

ALWAYS = ((b"x-content-type-options", b"nosniff"),)
"""For every answer."""
_PAGE = (
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    ),
)


def guarded(send: Send) -> Send:
    """`send` for a page and its files."""

    async def reply(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_PAGE]}
        await send(message)

    return reply
