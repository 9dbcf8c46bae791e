"""Reasoning as `encrypted_content`: a client that keeps nothing else hands it back, and the next prompt repeats it.

OpenAI hides its reasoning in this field. Burnish shows its reasoning in clear as well, so this text is wrapped and not
secret.
"""

import base64
import binascii

_PREFIX = "burnish:"


def closed(text: str) -> str:
    """`text` as the client gets it."""
    return _PREFIX + base64.b64encode(text.encode()).decode()


def opened(content: str | None) -> str:
    """The text in `content`. Empty if Burnish did not write it."""
    if not content or not content.startswith(_PREFIX):
        return ""
    try:
        return base64.b64decode(content[len(_PREFIX) :], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
