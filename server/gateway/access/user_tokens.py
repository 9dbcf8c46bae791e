"""User tokens: with one, a program talks and gives feedback as one user of a back end.

A key with the scope `users` makes them (`POST /v1/users/tokens`). A token allows no more than its key: its tenant, its
agents, and of its scopes `inference` and `feedback`. It ends by itself, with its key, or when its user's tokens are
revoked. Nothing is stored.
"""

import time
from typing import Annotated

import msgspec

from burnish.errors import NotAllowed
from burnish.keys import MAX_TTL, MAX_USER
from burnish.server.gateway.access.signed_tokens import Signer

PREFIX = "but-"
_Agent = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class UserWish(msgspec.Struct, forbid_unknown_fields=True):
    """The body that asks for a token. Without `agents` the token may use those of the key."""

    user: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_USER, pattern=r"^[^\x00-\x1f\x7f]+$")]
    ttl_seconds: Annotated[int, msgspec.Meta(ge=1, le=MAX_TTL)] = 3600
    agents: Annotated[tuple[_Agent, ...], msgspec.Meta(max_length=20)] = ()


class UserGrant(msgspec.Struct, frozen=True, array_like=True):
    """What a token says. Times are in seconds since the epoch. Tokens of an earlier release do not say `made_at`."""

    tenant: str
    key_id: str
    user: str
    agents: tuple[str, ...]
    expires_at: int
    made_at: float = 0.0


class UserTokens:
    """Makes and reads tokens. All gateway processes of a machine share the secret."""

    def __init__(self, secret: str) -> None:
        self._signer = Signer(PREFIX, secret)

    def make(self, tenant: str, key_id: str, wish: UserWish, agents: tuple[str, ...]) -> tuple[str, int]:
        """A token, and the time at which it expires."""
        made_at = time.time()
        expires_at = int(made_at) + wish.ttl_seconds
        grant = UserGrant(tenant, key_id, wish.user, agents, expires_at, made_at)
        return self._signer.sign(msgspec.json.encode(grant)), expires_at

    def read(self, token: str) -> UserGrant:
        """What `token` says, whether or not it has expired. Raises NotAllowed (401) if it is not one of ours."""
        payload = self._signer.open(token)
        if payload is None:
            raise NotAllowed("the user token is not ours, or was altered; ask for a new one", code="invalid_token")
        grant: UserGrant = _decoder.decode(payload)
        return grant


_decoder = msgspec.json.Decoder(UserGrant)
