"""`/v1/embeddings`: passed to the engine except for fields of its own. Nothing is sampled or recorded."""

from typing import Annotated

import msgspec
from starlette.types import Receive, Scope, Send

from burnish.errors import EngineError, EngineUnavailable, RequestError
from burnish.server.gateway import passed_fields
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.call import JsonObject, cache_salt
from burnish.server.gateway.dialects import chat_fields as common
from burnish.server.gateway.dialects import completions
from burnish.server.gateway.engines.engines import EMBEDDINGS
from burnish.server.gateway.http.asgi import MAX_BODY_BYTES, read_body, send_bytes
from burnish.server.gateway.routing import resolve
from burnish.server.gateway.state import State

PATH = EMBEDDINGS
MAX_TEXTS = 2048
"""As many texts as OpenAI's clients may send at a time."""
_decoder = msgspec.json.Decoder(JsonObject)


class Fields(msgspec.Struct):
    """The fields that Burnish reads, except `input`."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


async def answer(state: State, caller: Caller, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
    """The engine's vectors, under the model name that the client used."""
    fields, raw = parse(await read_body(receive, MAX_BODY_BYTES))
    routes = state.routes.current()
    target = resolve(fields.model, caller, routes, state.settings.gateway.model_map)
    kept, left_out = passed_fields.for_engine(PATH, raw)
    asked = msgspec.json.encode({**kept, "model": target.engine_model, "cache_salt": cache_salt(caller.tenant)})
    # the engine knows a version only while it is loaded
    with state.heartbeat.hold(target.name), state.disconnects.watch(receive) as client:
        response = await state.engines.ask(routes, PATH, asked, request_id)
        try:
            tree = _decoder.decode(await response.read())
        except msgspec.DecodeError as error:
            raise EngineError("the engine's answer is not JSON; is it a vLLM server?") from error
        except OSError as error:
            raise EngineUnavailable("the engine went away while it was answering; please try again") from error
        finally:
            response.close()
        client.settle()
        tree["model"] = msgspec.Raw(msgspec.json.encode(fields.model))
        headers = [(b"x-burnish-ignored", ", ".join(left_out).encode())] if left_out else []
        await send_bytes(send, 200, msgspec.json.encode(tree), headers)


def parse(body: bytes) -> tuple[Fields, JsonObject]:
    """The fields, and all fields as JSON text. Raises RequestError with the name of the field at fault."""
    fields, raw = common.decoded(body, Fields, ("input",))
    if "input" not in raw:
        raise RequestError("input: missing required field `input`", param="input", code="invalid_value")
    completions.prompts("input", raw["input"], MAX_TEXTS)
    return fields, raw
