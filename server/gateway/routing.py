"""Routing: a model name becomes one version, which stays for the whole request.

`agent` means its live version, `agent@v12` that version, and the base's name the base. If the serving table has the
user's personal agent, it answers in the agent's place. A canary answers a share of the conversations. The choice needs
no state: a conversation's place in [0, 1) is a hash of the agent, the version on canary, the key, and the session's id
or the conversation's head (its first system and first user message, which every later request repeats). Each new canary
version draws anew.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from burnish.adapters.registry.personal import applies, name_of
from burnish.config import Personal
from burnish.errors import NotAllowed, NotFound, RequestError
from burnish.messages import text_of
from burnish.records import VersionName
from burnish.server.gateway.access.keyring import Caller
from burnish.serving_table import AgentRoute, Routes

MAX_REMEMBERED = 10_000
MAX_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Target:
    """The meaning of a model name now. Clients see `name`; the engine knows `engine_model`.

    `upstream` is the remote model that answers in the agent's place, None if the engine does. `is_pinned` means that
    the client named the version.
    """

    name: str
    engine_model: str
    agent: str
    version: int
    is_base: bool = False
    upstream: str | None = None
    is_pinned: bool = False


def resolve(model: str, caller: Caller, routes: Routes, model_map: Mapping[str, str]) -> Target:
    """The version that `model` names for `caller`. If there is no such name, the first matching pattern of `model_map`
    counts.

    Raises NotFound or NotAllowed.
    """
    if (target := _existing(model, caller, routes)) is not None:
        return target
    for pattern, name in model_map.items():
        if fnmatchcase(model, pattern):
            if (target := _existing(name, caller, routes)) is not None:
                return target
            raise _missing(name, caller, routes, f" (gateway.model_map's word for {model!r})")
    raise _missing(model, caller, routes)


def remote(target: Target, model: str) -> Target:
    """The remote `model` in the place of `target`."""
    return Target(f"{target.agent}@remote", model, target.agent, 0, upstream=model)


def names(caller: Caller, routes: Routes) -> list[str]:
    """Every model name that `caller` may use."""
    found: list[str] = []
    for agent in _visible(caller, routes):
        found += [agent.name, *(str(VersionName(agent.name, version)) for version in sorted({0, *agent.loaded}))]
    if not caller.agents or routes.base_name in caller.agents:
        found.append(routes.base_name)
    return found


def entry(
    name: str, caller: Caller, routes: Routes, model_map: Mapping[str, str], max_model_len: int | None = None
) -> dict[str, Any]:
    """One model as `GET /v1/models/{id}` shows it, with OpenAI's fields and Anthropic's. Each client reads its own.

    `max_model_len` is the engine's limit on prompt and reply together, in tokens. vLLM cuts a larger `max_tokens` to
    the rest.
    """
    target = resolve(name, caller, routes, model_map)
    parent = None if target.is_base else routes.base_name
    ours = {"id": name, "object": "model", "created": 0, "owned_by": "burnish", "root": target.name, "parent": parent}
    theirs = {"type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z", "lifecycle": "active"}
    return {**ours, **theirs, "max_input_tokens": max_model_len, "max_tokens": max_model_len}


def page(known: Sequence[str], query: bytes) -> tuple[Sequence[str], bool]:
    """The page of `known` that an Anthropic client's query string asks for, and whether more follows in that direction.

    Without `limit` it is everything after `after_id` or before `before_id`. Raises RequestError with the name of the
    parameter at fault.
    """
    asked = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    limit = asked.get("limit", str(MAX_PAGE))
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 5 and 1 <= int(limit) <= MAX_PAGE):
        raise RequestError(
            f"limit: expected a number from 1 to {MAX_PAGE}, got {limit!r}", param="limit", code="invalid_value"
        )
    size = int(limit) if "limit" in asked else len(known)
    left = known
    for name in ("after_id", "before_id"):
        if (cursor := asked.get(name)) is None:
            continue
        if cursor not in left:
            what = f"{name}: there is no model {cursor!r} here (any more); begin without it"
            raise RequestError(what, param=name, code="invalid_value")
        at = left.index(cursor)
        left = left[at + 1 :] if name == "after_id" else left[:at]
    shown = left[max(0, len(left) - size) :] if "before_id" in asked else left[:size]
    return shown, len(shown) < len(left)


def _existing(model: str, caller: Caller, routes: Routes) -> Target | None:
    """Like `_find`, cached as long as the serving table stays the same."""
    key = (model, caller.tenant, caller.agents)
    target: Target | None = routes.memo.get(key)
    if target is None and (target := _find(model, caller, routes)) is not None and len(routes.memo) < MAX_REMEMBERED:
        routes.memo[key] = target
    return target


def _find(model: str, caller: Caller, routes: Routes) -> Target | None:
    """The version that `model` names. None if the caller has no such agent, so that the name may mean another."""
    if model == routes.base_name and model not in routes.agents:
        _check_allowed(model, caller)
        return Target(model, model, model, 0, is_base=True)
    pinned = None if model in routes.agents else VersionName.parse(model)
    agent = routes.agents.get(pinned.agent if pinned else model)
    if agent is None or agent.tenant != caller.tenant or agent.parent is not None:
        return None
    _check_allowed(agent.name, caller)
    version = pinned.version if pinned else agent.live
    if pinned and version and version not in agent.loaded:  # the client gets the version that it asked for or none
        raise _missing(model, caller, routes)
    name = str(VersionName(agent.name, version))
    engine_model = agent.engine_model(version, routes.base_name)
    return Target(name, engine_model, agent.name, version, is_pinned=pinned is not None)


def _visible(caller: Caller, routes: Routes) -> list[AgentRoute]:
    mine = (agent for agent in routes.agents.values() if agent.tenant == caller.tenant and agent.parent is None)
    return [agent for agent in mine if not caller.agents or agent.name in caller.agents]


def _check_allowed(name: str, caller: Caller) -> None:
    if caller.agents and name not in caller.agents:
        allowed = ", ".join(sorted(caller.agents))
        raise NotAllowed(
            f"key {caller.key_id} may use {allowed}, not {name!r}", code="model_not_allowed", param="model"
        )


def _missing(model: str, caller: Caller, routes: Routes, why: str = "") -> NotFound:
    known = names(caller, routes)
    shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    return NotFound(
        f"the model {model!r}{why} does not exist; there are: {shown or 'none yet'}",
        code="model_not_found",
        param="model",
    )


def to_personal_agent(target: Target, routes: Routes, settings: Personal, tenant: str, user: str | None) -> Target:
    """The user's personal agent if the serving table has it, else `target`. A named version is never replaced."""
    if not user or target.is_pinned or target.is_base or not applies(settings, target.agent):
        return target
    route = routes.agents.get(name_of(tenant, target.agent, user))
    if route is None or (route.tenant, route.parent, route.user) != (tenant, target.agent, user):
        return target  # two users may share a name, which is a short digest
    name = str(VersionName(route.name, route.live))
    return Target(name, route.engine_model(route.live, routes.base_name), route.name, route.live)


_messages = msgspec.json.Decoder(list[msgspec.Raw])
_SYSTEM = ("system", "developer")


class _Role(msgspec.Struct, gc=False):
    role: str = ""


_role = msgspec.json.Decoder(_Role)


def to_canary(target: Target, routes: Routes, key_id: str, session_id: str | None, messages: msgspec.Raw) -> Target:
    """The canary if it answers this conversation, else `target`. A named version is never replaced.

    `messages` is the request's JSON array. Its first messages are read only if no session is named.
    """
    route = routes.agents.get(target.agent)
    if route is None or route.canary is None or not route.canary_share:
        return target
    if target.is_pinned or target.is_base or target.version != route.live:
        return target
    if place(route, key_id, f"id:{session_id}" if session_id else f"head:{head_of(messages)}") >= route.canary_share:
        return target
    name = str(VersionName(route.name, route.canary))
    return replace(
        target, name=name, engine_model=route.engine_model(route.canary, routes.base_name), version=route.canary
    )


def place(route: AgentRoute, key_id: str, conversation: str) -> float:
    """A conversation's place in [0, 1)."""
    text = f"{route.name}\0{route.canary}\0{key_id}\0{conversation}"
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big") / 2**64


def head_of(messages: msgspec.Raw) -> str:
    """The text of the first system message and of the first user message, as far as there are any."""
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
