"""Tokens that are signed and stored nowhere: a prefix, a payload, and an HMAC-SHA256 of the payload."""

import base64
import hashlib
import hmac


class Signer:
    """Makes and opens the tokens that begin with `prefix`. Who has the secret can make any."""

    def __init__(self, prefix: str, secret: str) -> None:
        self._prefix = prefix
        self._secret = secret.encode()

    def sign(self, payload: bytes) -> str:
        packed = _packed(payload)
        return f"{self._prefix}{packed}.{self._signature(packed)}"

    def open(self, token: str) -> bytes | None:
        """The payload, None if the token is not one of ours."""
        packed, _, signature = token.removeprefix(self._prefix).partition(".")
        # Bytes, because hmac.compare_digest takes only ASCII text, and the sender chooses a token's characters.
        if not hmac.compare_digest(self._signature(packed).encode(), signature.encode("utf-8", "surrogatepass")):
            return None
        return base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))

    def _signature(self, packed: str) -> str:
        return _packed(hmac.digest(self._secret, packed.encode("utf-8", "surrogatepass"), hashlib.sha256))


def _packed(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
