"""`POST /v1/users/tokens`: a back end makes a token for one of its users."""

import msgspec
from starlette.types import Receive, Scope, Send

from burnish.errors import NotAllowed
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.access.user_tokens import UserWish
from burnish.server.gateway.feedback.parse import decoded
from burnish.server.gateway.http.asgi import read_body, send_json
from burnish.server.gateway.state import State

PATH = "/v1/users/tokens"
MAX_BODY = 16 * 1024
_decoder = msgspec.json.Decoder(UserWish)


async def answer(state: State, caller: Caller, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
    """Make a user token. Answers 200."""
    wish = decoded(_decoder, await read_body(receive, MAX_BODY))
    if caller.agents and not caller.agents.issuperset(wish.agents):
        raise NotAllowed(
            f"agents: key {caller.key_id} may use {', '.join(sorted(caller.agents))}; name only these",
            code="model_not_allowed",
            param="agents",
        )
    agents = wish.agents or tuple(sorted(caller.agents))
    token, expires_at = state.keyring.user_tokens.make(caller.tenant, caller.key_id, wish, agents)
    await send_json(send, 200, {"token": token, "user": wish.user, "expires_at": expires_at})
