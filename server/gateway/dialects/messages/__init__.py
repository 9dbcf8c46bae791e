"""`/v1/messages`: Anthropic's dialect, translated to a chat completion for the engine and back.

The engine has a Messages route of its own, which returns neither token ids nor log-probs.
"""

from collections.abc import Mapping

from burnish.server.gateway.call import Call, Reply
from burnish.server.gateway.dialects.messages import error_envelope, request
from burnish.server.gateway.dialects.messages.error_envelope import PATH as PATH


class Messages:
    """The dialect."""

    name = "messages"

    def read(self, body: bytes, headers: Mapping[bytes, str]) -> Call:
        return request.parse(body)

    def reply_to(self, error: BaseException, request_id: str) -> Reply:
        return error_envelope.reply_to(error, request_id)

    def frame_of(self, error: BaseException, request_id: str) -> bytes:
        return error_envelope.frame_of(error, request_id)


def owns(path: str) -> bool:
    """True for every path under which callers expect Anthropic's errors, unknown paths included."""
    return path == PATH or path.startswith(PATH + "/")
