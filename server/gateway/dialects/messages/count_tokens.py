"""`/v1/messages/count_tokens`: the length of the prompt by the engine's tokenizer. Nothing is recorded."""

import msgspec
from starlette.types import Receive, Scope, Send

from burnish.errors import EngineError, EngineUnavailable
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.dialects.messages.error_envelope import PATH
from burnish.server.gateway.dialects.messages.request import Translation
from burnish.server.gateway.http.asgi import MAX_BODY_BYTES, read_body, send_json
from burnish.server.gateway.routing import resolve
from burnish.server.gateway.state import State

COUNT_PATH = PATH + "/count_tokens"
TOKENIZE = "/tokenize"


class _Counted(msgspec.Struct):
    """The part of the engine's answer that is used."""

    count: int


_decoder = msgspec.json.Decoder(_Counted)


async def answer(state: State, caller: Caller, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
    """The number of input tokens that the same body would have as a message."""
    translation = Translation(await read_body(receive, MAX_BODY_BYTES))
    routes = state.routes.current()
    target = resolve(translation.fields.model, caller, routes, state.settings.gateway.model_map)
    asked = {"model": target.engine_model, "add_generation_prompt": True, **translation.counted()}
    # the engine knows a version only while it is loaded
    with state.heartbeat.hold(target.name), state.disconnects.watch(receive) as client:
        response = await state.engines.ask(routes, TOKENIZE, msgspec.json.encode(asked), request_id)
        try:
            counted = _decoder.decode(await response.read())
        except msgspec.DecodeError as error:
            raise EngineError("the engine's answer is not a token count; is it a vLLM server?") from error
        except OSError as error:
            raise EngineUnavailable("the engine went away while it was counting; please try again") from error
        finally:
            response.close()
        client.settle()
        await send_json(send, 200, {"input_tokens": counted.count})
