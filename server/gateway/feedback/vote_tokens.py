"""Vote tokens: with one, a page can rate one reply without a key.

A token is `bft-`, its payload, and an HMAC-SHA256 of the payload. All gateway processes of a machine share the secret.
A token speaks for the key that made it as long as that key exists. Nothing is stored. A second vote with the same token
has the same feedback id, so it replaces the first.
"""

import base64
import hashlib
import hmac
import secrets
import time
from dataclasses import replace
from typing import Annotated

import msgspec

from burnish.errors import NotAllowed
from burnish.files import Watched
from burnish.keys import Key, Scope
from burnish.records import TargetKind
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.feedback.parse import About, Name
from burnish.serving_table import Routes

PREFIX = "bft-"
MAX_TTL = 30 * 86400
_KEYS_BY_ID = "feedback.token.keys"


class Wish(msgspec.Struct, forbid_unknown_fields=True):
    """The body that asks for a token."""

    target: Name
    about: About = TargetKind.RESPONSE.value
    ttl_seconds: Annotated[int, msgspec.Meta(ge=1, le=MAX_TTL)] = 86400


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """What a token allows. `expires_at` is in whole seconds since the epoch. `nonce` makes each token unique."""

    tenant: str
    key_id: str
    target: str
    about: str
    expires_at: int
    nonce: str


class Tokens:
    """Makes and reads tokens. `routes` gives the keys that exist now."""

    def __init__(self, secret: str, routes: Watched[Routes]) -> None:
        self._secret = secret.encode()
        self._routes = routes

    def make(self, caller: Caller, wish: Wish, kind: TargetKind) -> tuple[str, int]:
        """A token for feedback on one target, and the time at which it expires."""
        expires_at = int(time.time()) + wish.ttl_seconds
        grant = Grant(caller.tenant, caller.key_id, wish.target, kind.value, expires_at, secrets.token_hex(16))
        payload = _packed(msgspec.json.encode(grant))
        return f"{PREFIX}{payload}.{self._signature(payload)}", expires_at

    def bearer(self, token: str) -> Caller:
        """Who votes with `token`: its key, with the key's limits, as far as it may vote. Raises NotAllowed."""
        key = self._key(self.read(token).key_id)
        assert key is not None, "the token was just read"
        return replace(Caller.of(key), scopes=frozenset({Scope.FEEDBACK}))

    def read(self, token: str) -> Grant:
        """The grant in `token`. Raises NotAllowed (401) if it is not ours, has expired, or its key is gone."""
        payload, _, signature = token.removeprefix(PREFIX).partition(".")
        # Bytes, because hmac.compare_digest takes only ASCII text, and the sender chooses a token's characters.
        if not hmac.compare_digest(self._signature(payload).encode(), signature.encode("utf-8", "surrogatepass")):
            raise NotAllowed(
                "the feedback token is not one of ours, or was altered; ask for a new one", code="invalid_token"
            )
        grant: Grant = _decoder.decode(_unpacked(payload))
        if grant.expires_at <= time.time():
            raise NotAllowed("the feedback token has expired; ask for a new one", code="expired_token")
        key = self._key(grant.key_id)
        if key is None or key.tenant != grant.tenant or not key.covers(Scope.FEEDBACK):
            raise NotAllowed(
                f"the feedback token was made with the key {grant.key_id}, which is revoked; ask for a new one",
                code="revoked_token",
            )
        return grant

    def _key(self, key_id: str) -> Key | None:
        routes = self._routes.current()
        by_id: dict[str, Key] | None = routes.memo.get(_KEYS_BY_ID)
        if by_id is None:
            by_id = routes.memo[_KEYS_BY_ID] = {key.key_id: key for key in routes.keys.values()}
        return by_id.get(key_id)

    def _signature(self, payload: str) -> str:
        return _packed(hmac.digest(self._secret, payload.encode("utf-8", "surrogatepass"), hashlib.sha256))


def _packed(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unpacked(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


_decoder = msgspec.json.Decoder(Grant)
