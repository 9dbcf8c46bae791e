"""Attacks on who is let in: proxies, foreign pages, scopes, tenants."""

import os
from functools import partial
from typing import Any

from benchmarks.security.attacks import add, attack
from benchmarks.security.attacks.stand import PUBLIC, Stand


def _passes_proxy(headers: dict[str, str], stand: Stand) -> bool:
    body = {"model": "agent", "messages": [{"role": "user", "content": "hi"}]}
    return stand.ask("POST", "/v1/chat/completions", None, body, headers=headers).status_code == 200


for _header, _value in (
    ("x-forwarded-for", "203.0.113.9"),
    ("forwarded", "for=203.0.113.9"),
    ("x-real-ip", "203.0.113.9"),
    ("via", "1.1 proxy"),
):
    add(f"the internet talks without a key through a proxy: {_header}", partial(_passes_proxy, {_header: _value}))
add("the internet talks without a key under the public name", partial(_passes_proxy, {"host": PUBLIC}))


def _passes_silent_proxy(head: bytes, stand: Stand) -> bool:
    """A proxy of another user that says nothing of itself. Only root can play it."""
    asked = b"GET /v1/models HTTP/1.1\r\n" + head + b"\r\n"
    return os.geteuid() == 0 and b" 200 " in stand.raw(asked, user=_WWW_DATA)


_WWW_DATA = 33
for _proxy, _said in (
    ("nginx in HTTP/1.1", b"Host: 127.0.0.1:8700\r\n"),
    ("HAProxy without forwardfor", b"Host: localhost\r\n"),
    ("stunnel", b"Host: localhost:8700\r\nConnection: close\r\n"),
):
    add(f"the internet talks without a key through {_proxy}", partial(_passes_silent_proxy, _said))
add("a page reaches the gateway by DNS rebinding", partial(_passes_proxy, {"host": "evil.example"}))
add("a page of another origin talks", partial(_passes_proxy, {"origin": "https://evil.example"}))


def _let_in(method: str, path: str, key: str | None, body: Any, stand: Stand) -> bool:
    return stand.ask(method, path, key, body).status_code not in (401, 403, 404, 405, 599)


_AGENT = "/admin/agents/agent"
for _what, _method, _path, _key, _body in (
    ("a stranger lists agents", "GET", "/admin/agents", None, None),
    ("an unknown key lists agents", "GET", "/admin/agents", "sk-burnish-unknown", None),
    ("a talker lists agents", "GET", "/admin/agents", "talker", None),
    ("a talker reads the audit log", "GET", "/admin/audit", "talker", None),
    ("a voter pauses learning", "POST", f"{_AGENT}/learner/pause", "voter", {}),
    ("a viewer pauses learning", "POST", f"{_AGENT}/learner/pause", "viewer", {}),
    ("a viewer changes settings", "POST", f"{_AGENT}/set", "viewer", {"settings": {}}),
    ("a viewer rolls back", "POST", f"{_AGENT}/rollback", "viewer", {"to": 0}),
    ("an operator of another tenant reads an agent", "GET", _AGENT, "foreigner", None),
    ("an operator of another tenant changes settings", "POST", f"{_AGENT}/set", "foreigner", {"settings": {}}),
    ("a key for one agent talks to another", "POST", "/v1/chat/completions", "limited", None),
):
    _asked: Any = (
        _body if "completions" not in _path else {"model": "agent", "messages": [{"role": "user", "content": "x"}]}
    )
    add(_what, partial(_let_in, _method, _path, _key, _asked))


@attack("a viewer exports weights")
def _weights(stand: Stand) -> bool:
    return stand.ask("GET", f"{_AGENT}/versions/1/export", "viewer").status_code not in (401, 403)


@attack("an operator of another tenant reads a turn")
def _turn(stand: Stand) -> bool:
    name = stand.said()
    stand.settled(name)
    return stand.ask("GET", f"/admin/turns/{name}", "foreigner").status_code == 200


@attack("an operator of another tenant sees names in the list of models")
def _models(stand: Stand) -> bool:
    return '"agent"' in stand.ask("GET", "/v1/models", "foreigner").text


@attack("an operator of another tenant learns which names are taken")
def _names(stand: Stand) -> bool:
    def said(name: str) -> tuple[int, str]:
        answer = stand.ask("POST", "/admin/agents", "foreigner", {"name": name})
        return answer.status_code, answer.text.replace(name, "NAME")

    return said("second") != said("secret")


@attack("the key is taken from the query")
def _query(stand: Stand) -> bool:
    return stand.ask("GET", f"/admin/agents?key={stand.secrets['admin']}&token={stand.secrets['admin']}").is_success


@attack("a quote in an id reads what is others'")
def _quote(stand: Stand) -> bool:
    stand.ask("POST", "/v1/feedback", "voter", {"target": stand.said(), "rating": "up", "comment": "hidden words"})
    return "hidden words" in stand.ask("GET", "/v1/feedback?target=x'%20OR%20'1'='1", "foreigner").text


@attack("the engine's own routes are reached through the gateway")
def _engine(stand: Stand) -> bool:
    paths = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/tokenize", "/invocations", "/metrics")
    return any(stand.ask("POST", path, "admin", {}).status_code not in (404, 405) for path in paths)


def _made(name: str, stand: Stand) -> bool:
    return stand.ask("POST", "/admin/agents", "operator", {"name": name}).is_success


for _name in ("../outside", "a/b", "..", "x\x00y", "x\ny"):
    add(f"an agent has the name {_name!r}", partial(_made, _name))


@attack("feedback has no limit for its key")
def _votes(stand: Stand) -> bool:
    body = {"target": "chatcmpl-none", "rating": "up"}
    return all(stand.ask("POST", "/v1/feedback", "slow", body).status_code == 202 for _ in range(12))


@attack("token counts have no limit for their key")
def _counts(stand: Stand) -> bool:
    body = {"model": "agent", "messages": [{"role": "user", "content": "x"}]}
    path = "/v1/messages/count_tokens"
    return all(stand.ask("POST", path, "slower", body).status_code == 200 for _ in range(12))


@attack("user tokens multiply the limits of their key")
def _multiplied(stand: Stand) -> bool:
    made = [stand.ask("POST", "/v1/users/tokens", "metered", {"user": f"user {n}"}) for n in range(3)]
    tokens = [answer.json()["token"] for answer in made if answer.is_success]
    return sum(stand.chat(token).is_success for token in tokens for _ in range(3)) > 6
