"""Vote tokens: with one, a page can rate one reply without a key.

All gateway processes of a machine share the secret. A token speaks for the key (or the user) that made it as long as
that key exists and the user's tokens are not revoked. Nothing is stored. A second vote with the same token has the same
feedback id, so it replaces the first.
"""

import secrets
import time
from dataclasses import replace
from typing import Annotated

import msgspec

from burnish.errors import NotAllowed
from burnish.keys import MAX_VOTE_TTL, Scope
from burnish.records import TargetKind
from burnish.server.gateway.access.keyring import Caller, Keyring
from burnish.server.gateway.access.signed_tokens import Signer
from burnish.server.gateway.feedback.parse import About, Name

PREFIX = "bft-"


class Wish(msgspec.Struct, forbid_unknown_fields=True):
    """The body that asks for a token."""

    target: Name
    about: About = TargetKind.RESPONSE.value
    ttl_seconds: Annotated[int, msgspec.Meta(ge=1, le=MAX_VOTE_TTL)] = 86400


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """What a token allows. `expires_at` and `made_at` are in seconds since the epoch. `nonce` makes each token unique.
    `user` is the proved user who asked for it.
    """

    tenant: str
    key_id: str
    target: str
    about: str
    expires_at: int
    nonce: str
    user: str | None = None
    made_at: float = 0.0


class Tokens:
    """Makes and reads tokens. `keyring` knows the keys that exist now."""

    def __init__(self, secret: str, keyring: Keyring) -> None:
        self._signer = Signer(PREFIX, secret)
        self._keyring = keyring

    def make(self, caller: Caller, wish: Wish, kind: TargetKind) -> tuple[str, int]:
        """A token for feedback on one target, and the time at which it expires."""
        expires_at = int(time.time()) + wish.ttl_seconds
        nonce = secrets.token_hex(16)
        about, now = kind.value, time.time()
        grant = Grant(caller.tenant, caller.key_id, wish.target, about, expires_at, nonce, caller.user, now)
        return self._signer.sign(msgspec.json.encode(grant)), expires_at

    def bearer(self, token: str) -> Caller:
        """Who votes with `token`: its key or that key's user, with the key's limits, as far as it may vote.

        Raises NotAllowed.
        """
        grant = self.read(token)
        key = self._keyring.key_named(grant.key_id)
        assert key is not None, "the token was just read"
        return replace(Caller.of(key), scopes=frozenset({Scope.FEEDBACK}), user=grant.user)

    def read(self, token: str) -> Grant:
        """The grant in `token`. Raises NotAllowed (401) if it is not ours, has expired, was revoked, or has no key."""
        payload = self._signer.open(token)
        if payload is None:
            raise NotAllowed(
                "the feedback token is not one of ours, or was altered; ask for a new one", code="invalid_token"
            )
        grant: Grant = _decoder.decode(payload)
        if grant.expires_at <= time.time():
            raise NotAllowed("the feedback token has expired; ask for a new one", code="expired_token")
        self._keyring.check_revoked(grant.tenant, grant.user, grant.made_at)
        key = self._keyring.key_named(grant.key_id)
        if key is None or key.tenant != grant.tenant or not key.covers(Scope.FEEDBACK):
            raise NotAllowed(
                f"the feedback token was made with the key {grant.key_id}, which is revoked; ask for a new one",
                code="revoked_token",
            )
        return grant


_decoder = msgspec.json.Decoder(Grant)
