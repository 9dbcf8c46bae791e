"""The Responses dialect: how `/v1/responses` is read and answered, failures included."""

from collections.abc import Mapping
from weakref import WeakValueDictionary

from burnish.errors import RequestError
from burnish.server.gateway.call import Call, Renderer, Reply
from burnish.server.gateway.dialects.responses import request
from burnish.server.gateway.dialects.responses.renderer import ResponsesRenderer
from burnish.server.gateway.http import error_envelope

PATH = "/v1/responses"
_OURS = {  # the engine names fields by their chat names
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}


class Responses:
    """The dialect. It knows the active renderers, because a stream that breaks off goes on with their sequence
    numbers."""

    name = "responses"

    def __init__(self) -> None:
        self._at_work: WeakValueDictionary[str, ResponsesRenderer] = WeakValueDictionary()

    def read(self, body: bytes, headers: Mapping[bytes, str]) -> Call:
        call = request.parse(body)
        render = call.render

        def remembered(model: str, request_id: str) -> Renderer:
            renderer = render(model, request_id)
            assert isinstance(renderer, ResponsesRenderer), "request.py makes no other"
            self._at_work[request_id] = renderer
            return renderer

        call.render = remembered
        return call

    def reply_to(self, error: BaseException, request_id: str) -> Reply:
        if isinstance(error, RequestError) and error.param in _OURS:
            error.param = _OURS[error.param]
        return error_envelope.reply_to(error, request_id)

    def frame_of(self, error: BaseException, request_id: str) -> bytes:
        return self._at_work[request_id].failed(error_envelope.tree_of(error, request_id)["error"])
