"""The Host and Origin guard: a web page in somebody's browser must not reach a gateway on their machine.

`Host` must be a loopback name, the address that the gateway listens on, or a name in `gateway.allowed_hosts`. This
defeats DNS rebinding. `Origin`, if a browser sends one, must be the gateway's own or in `gateway.allowed_origins`.
Listed origins get the CORS headers with which their scripts may read the answer.
"""

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.types import Scope

from burnish.config import Gateway
from burnish.errors import NotAllowed
from burnish.server import peer
from burnish.server.gateway.http.asgi import header, headers_of

_OUR_HEADERS = b"authorization, content-type, x-burnish-train, x-burnish-record"
_SESSION_HEADERS = b"x-session-id, x-turn-type, x-session-done"
_ANTHROPIC_HEADERS = b"x-api-key, anthropic-version, anthropic-beta"
_FORWARDED = frozenset(
    {
        *(b"forwarded", b"via", b"x-real-ip", b"x-client-ip", b"x-cluster-client-ip", b"x-original-forwarded-for"),
        *(b"true-client-ip", b"cf-connecting-ip", b"cdn-loop", b"x-envoy-external-address", b"x-amzn-trace-id"),
    }
)
MAX_HOST = 300
LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """True for names and addresses that only this machine can reach."""
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def hostname(authority: str) -> str | None:
    """The host of `host[:port]` in lower case, without port and brackets. None if there is none."""
    try:
        return urlsplit(f"//{authority}").hostname
    except ValueError:
        return None


def check(scope: Scope, settings: Gateway) -> str | None:
    """The listed foreign origin of this request, or None. Raises NotAllowed for a foreign origin that is not listed."""
    headers = headers_of(scope)
    authority = headers.get(b"host", "")
    host = hostname(authority) if len(authority) <= MAX_HOST else None  # what is cached is the client's text
    if host is None or not (is_loopback(host) or host in _names(settings.host, settings.allowed_hosts)):
        raise NotAllowed(
            f"Host header: got {authority[:MAX_HOST]!r}, expected this machine or a name in gateway.allowed_hosts",
            code="foreign_host",
        )
    origin = headers.get(b"origin")
    if origin is None:
        return None
    if origin in settings.allowed_origins:
        return origin
    if origin.lower() in (f"http://{authority}".lower(), f"https://{authority}".lower()):
        return None
    raise NotAllowed(
        f"Origin header: got {origin!r}, expected the gateway's own or one in gateway.allowed_origins",
        code="foreign_origin",
    )


def is_direct(scope: Scope) -> bool:
    """True if a program of the gateway's own user asks, and nothing says that it does so for somebody else.

    The kernel says whose program it is. So a proxy that runs as another user is never direct. One of the same user
    shows by the name that its clients ask for, by its headers, or by HTTP/1.0, in which nginx used to ask by default.
    """
    host = hostname(header(scope, b"host") or "")
    if host is None or not is_loopback(host) or scope["http_version"] == "1.0":
        return False
    if any(name in _FORWARDED or name.startswith(b"x-forwarded") for name in headers_of(scope)):
        return False
    asker: peer.Peer | None = scope.get(peer.NAME)
    return asker is not None and asker.is_own


def may_be_open(settings: Gateway) -> bool:
    """True if direct requests need no key: on loopback, without a public name."""
    return settings.open_inference and is_loopback(settings.host) and not settings.allowed_hosts


@lru_cache
def _names(host: str, allowed: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name.lower() for name in (host, *allowed))


def cors_headers(origin: str) -> list[tuple[bytes, bytes]]:
    """The headers with which a script of a listed origin may read the answer."""
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"x-request-id, x-burnish-version, x-burnish-session, retry-after"),
        (b"vary", b"Origin"),
    ]


def preflight_headers() -> list[tuple[bytes, bytes]]:
    """The headers that answer a browser's preflight request."""
    return [
        (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
        (b"access-control-allow-headers", b", ".join([_OUR_HEADERS, _SESSION_HEADERS, _ANTHROPIC_HEADERS])),
        (b"access-control-max-age", b"600"),
    ]
