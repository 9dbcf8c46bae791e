"""Reasoning as `encrypted_content`: a client that keeps nothing else of it hands it back, and the next prompt repeats
it.

OpenAI hides its reasoning that way. Ours is shown in clear beside it, so that this is only wrapped, not secret.
"""

import base64
import binascii

_PREFIX = "burnish:"


def closed(text: str) -> str:
    """`text` as it is given to the client."""
    return _PREFIX + base64.b64encode(text.encode()).decode()


def opened(content: str | None) -> str:
    """The text in `content`; empty for what is not ours."""
    if not content or not content.startswith(_PREFIX):
        return ""
    try:
        return base64.b64decode(content[len(_PREFIX) :], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
