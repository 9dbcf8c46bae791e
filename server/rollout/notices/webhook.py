"""One signed POST to the webhook, as Standard Webhooks describes it (https://www.standardwebhooks.com).

The receiver checks `webhook-signature` with the secret in `webhook.key` of the state directory. A URL that begins with
`slack+` gets the body that Slack-compatible receivers read. No redirect is followed, and a private address is refused
unless it is allowed: the address is checked where the connection is made, so a name cannot point elsewhere later.
"""

import base64
import hashlib
import hmac
import ipaddress
import secrets
import socket
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import structlog
from aiohttp.abc import AbstractResolver, ResolveResult

from burnish.config import Settings
from burnish.keys import ensure_secret
from burnish.logs import told
from burnish.server.rollout.notices.templates import body_of

POST_SECONDS = 5.0
"""Seconds for one POST."""
SLACK = "slack+"
_SECRET = "whsec_"
_AGAIN = (408, 425, 429)
log = structlog.get_logger(__name__)


class Outcome(StrEnum):
    """What became of a POST. After `FAILED` it is worth another try."""

    DELIVERED = "delivered"
    FAILED = "failed"
    REFUSED = "refused"


class Webhook:
    """One receiver. `allows_private`: it may stand at a private address."""

    def __init__(self, url: str, secret: str, *, allows_private: bool = False, timeout: float = POST_SECONDS) -> None:
        self._is_slack = url.startswith(SLACK)
        self._url = url.removeprefix(SLACK)
        self._key = base64.b64decode(secret.removeprefix(_SECRET))
        self._allows_private = allows_private
        self._timeout = aiohttp.ClientTimeout(total=timeout)

    @classmethod
    def of(cls, settings: Settings) -> "Webhook | None":
        """The webhook of the settings, None if there is none."""
        alerts = settings.alerts
        if not alerts.webhook:
            return None
        return cls(alerts.webhook, secret_in(settings.state_dir), allows_private=alerts.allow_private)

    async def post(self, notice: Mapping[str, Any]) -> Outcome:
        """Deliver a notice. Raises nothing: what went wrong is logged."""
        body = body_of(notice, is_slack=self._is_slack)
        headers = {"content-type": "application/json", **self._signed(str(notice["id"]), body)}
        try:
            host = urlsplit(self._url).hostname or ""
            if not self._allows_private and _is_private_literal(host):
                raise PrivateAddress(host)
            async with (
                aiohttp.ClientSession(timeout=self._timeout, connector=self._connector()) as http,
                http.post(self._url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                if answer.status < 300:
                    return Outcome.DELIVERED
                log.warning("the alert webhook refused an alert", status=answer.status, alert=notice["event"])
                return Outcome.FAILED if answer.status >= 500 or answer.status in _AGAIN else Outcome.REFUSED
        except PrivateAddress as error:
            log.error(
                "the alert webhook has a private address; set alerts.allow_private if that is meant", address=str(error)
            )
            return Outcome.REFUSED
        except aiohttp.InvalidURL as error:
            log.error("the alert webhook cannot be reached: alerts.webhook is no URL", error=told(error))
            return Outcome.REFUSED
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if isinstance(error.__cause__, PrivateAddress):
                log.error("the alert webhook has a private address; set alerts.allow_private if that is meant")
                return Outcome.REFUSED
            log.warning("the alert webhook cannot be reached", error=told(error), alert=notice["event"])
            return Outcome.FAILED

    def _signed(self, notice_id: str, body: bytes) -> dict[str, str]:
        at = str(int(time.time()))
        signature = base64.b64encode(hmac.digest(self._key, f"{notice_id}.{at}.".encode() + body, hashlib.sha256))
        return {"webhook-id": notice_id, "webhook-timestamp": at, "webhook-signature": f"v1,{signature.decode()}"}

    def _connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector() if self._allows_private else aiohttp.TCPConnector(resolver=_PublicOnly())


class PrivateAddress(OSError):
    """The receiver stands at an address that is not public."""


class _PublicOnly(AbstractResolver):
    """Resolves names to public addresses. A name that has any other is refused."""

    def __init__(self) -> None:
        self._inner = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        for each in found:
            if not is_public(each["host"]):
                raise PrivateAddress(each["host"])
        return found

    async def close(self) -> None:
        await self._inner.close()


def secret_in(state_dir: Path) -> str:
    """The secret that receivers check signatures with. Made with mode 0600 if there is none."""
    return ensure_secret(state_dir / "webhook.key", _SECRET + base64.b64encode(secrets.token_bytes(32)).decode())


def is_public(address: str) -> bool:
    """True for an address of the public internet."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_global and not found.is_multicast


def _is_private_literal(host: str) -> bool:
    """True if `host` is an address, not a name, and not a public one."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return not is_public(host)
