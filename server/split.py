"""Which conversations a canary answers: sticky without state. Costs nothing where no canary runs.

A conversation's place in [0, 1) is a hash of the agent, the version on trial, the key, and the session's id, else the conversation's
head (its first system and first user message, which every later request repeats). A new version draws anew, so that nobody is
always the one to try things first.
"""

import hashlib
from dataclasses import replace
from typing import Any

import msgspec

from burnish.records import VersionName
from burnish.routes import AgentRoute, Routes
from server.kind import text_of
from server.models import Target

_messages = msgspec.json.Decoder(list[msgspec.Raw])
_SYSTEM = ("system", "developer")


class _Role(msgspec.Struct, gc=False):
    role: str = ""


_role = msgspec.json.Decoder(_Role)


def split(target: Target, routes: Routes, key_id: str, session_id: str | None, messages: msgspec.Raw) -> Target:
    """`target`, or the canary in its place. Who names a version gets that version.

    `messages` is the request's JSON array; only where no session is named are its first messages looked at.
    """
    route = routes.agents.get(target.agent)
    if route is None or route.canary is None or not route.canary_share:
        return target
    if target.is_pinned or target.is_base or target.version != route.live:
        return target
    if place(route, key_id, f"id:{session_id}" if session_id else f"head:{head_of(messages)}") >= route.canary_share:
        return target
    name = str(VersionName(route.name, route.canary))
    return replace(target, name=name, engine_model=route.engine_model(route.canary, routes.base_name), version=route.canary)


def place(route: AgentRoute, key_id: str, conversation: str) -> float:
    """A conversation's place in [0, 1)."""
    text = f"{route.name}\0{route.canary}\0{key_id}\0{conversation}"
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big") / 2**64


def head_of(messages: msgspec.Raw) -> str:
    """The words of the first system message and of the first user message, as far as there are any."""
    found: dict[str, str] = {}
    for raw in _messages.decode(messages):
        try:
            role = _role.decode(raw).role
        except msgspec.ValidationError:
            continue  # the engine refuses it
        name = "system" if role in _SYSTEM else role
        if name in ("system", "user") and name not in found:
            message: dict[str, Any] = msgspec.json.decode(raw)
            found[name] = text_of(message)
        if name == "user":
            break
    return f"{found.get('system', '')}\0{found.get('user', '')}"
