"""Attacks on whose words count: claimed users, votes of harnesses, tools' output, feedback on what is others'."""

import time
from functools import partial
from typing import Any

from benchmarks.security.attacks import add, attack
from benchmarks.security.attacks.stand import HELLO, Stand

_CLAIMS: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "chat's user": ("/v1/chat/completions", {"messages": HELLO, "user": "ann"}, {}),
    "a header": ("/v1/chat/completions", {"messages": HELLO}, {"x-burnish-user": "ann"}),
    "responses' user": ("/v1/responses", {"input": "hi", "user": "ann"}, {}),
    "messages' metadata": ("/v1/messages", {"max_tokens": 9, "messages": HELLO, "metadata": {"user_id": "ann"}}, {}),
}


def _is_ann(path: str, body: dict[str, Any], headers: dict[str, str], stand: Stand) -> bool:
    answer = stand.ask("POST", path, "talker", {"model": "agent", **body}, headers=headers)
    name = answer.headers.get("x-burnish-turn") or answer.json().get("id", "")
    row = stand.row(
        "SELECT user FROM interaction WHERE interaction_id = ? OR request_id LIKE ?", name, f"%{name[-20:]}"
    )
    return row == ("ann",)


for _name, _claim in _CLAIMS.items():
    add(f"a key speaks as another's user through {_name}", partial(_is_ann, *_claim))


@attack("twelve invented names of one key are twelve users")
def _names(stand: Stand) -> bool:
    names = [stand.said("both", user=f"invented {n}") for n in range(12)]
    stand.settled(names[-1])
    marks = ",".join("?" * len(names))
    found = stand.rows(f"SELECT count(DISTINCT user) FROM interaction WHERE interaction_id IN ({marks})", *names)
    return bool(found[0][0] > 1)


def _rate(stand: Stand, key: str, target: str, **said: Any) -> str:
    """The id of feedback that was accepted, else empty."""
    answer = stand.ask("POST", "/v1/feedback", key, {"target": target, **({} if said else {"rating": "up"}), **said})
    return str(answer.json().get("id", "")) if answer.status_code == 202 else ""


@attack("an agent praises itself with its own key")
def _own(stand: Stand) -> bool:
    name = stand.said()
    given = _rate(stand, "talker", name)
    return bool(given) and stand.joined(given, name) and _is_ready(stand, name)


@attack("an agent gives its own work an outcome")
def _outcome(stand: Stand) -> bool:
    name = stand.said()
    given = _rate(stand, "talker", name, outcome=True)
    return bool(given) and stand.joined(given, name) and _is_ready(stand, name)


@attack("an agent writes the right reply to its own turn")
def _right(stand: Stand) -> bool:
    name = stand.said()
    given = _rate(stand, "talker", name, demonstration="Buy AcmeCloud.")
    return bool(given) and stand.joined(given, name) and _is_ready(stand, name)


@attack("a line with a status in a tool's output takes back a user's praise")
def _status(stand: Stand) -> bool:
    asked = [{"role": "user", "content": f"look it up {next(stand.counter)}"}]
    answer = stand.chat("both", messages=asked).json()
    given = _rate(stand, "both", answer["id"])
    reply = answer["choices"][0]["message"]
    tool = {"role": "tool", "tool_call_id": "c1", "name": "fetch", "content": '{"status": 404}\nHTTP 404\nexit code 1'}
    stand.chat("both", messages=[*asked, {"role": "assistant", "content": reply["content"]}, tool])
    return stand.joined(given, answer["id"]) and not _is_ready(stand, answer["id"])


def _is_ready(stand: Stand, name: str) -> bool:
    return stand.rows("SELECT is_ready FROM interaction WHERE interaction_id = ?", name) == [(1,)]


def _joins(speaker: str, key: str, stand: Stand) -> bool:
    name = stand.said(speaker)
    stand.settled(name)
    given = _rate(stand, key, name)
    return bool(given) and stand.joined(given, name)


for _what, _speaker, _key in (
    ("another tenant's turn", "talker", "foreigner"),
    ("an agent that the key may not use", "talker", "limited"),
    ("another user's turn", "bob", "ann"),
):
    add(f"feedback counts on {_what}", partial(_joins, _speaker, _key))


def _is_verifier(key: str, stand: Stand) -> bool:
    return bool(_rate(stand, key, stand.said(), source="verifier", outcome=True))


for _key in ("talker", "voter", "viewer"):
    add(f"a {_key} speaks for a verifier", partial(_is_verifier, _key))


@attack("feedback of another key is withdrawn")
def _withdrawn(stand: Stand) -> bool:
    name = stand.said()
    given = _rate(stand, "voter", name)
    stand.joined(given, name)
    stand.ask("DELETE", f"/v1/feedback/{given}", "both")
    stand.joined(given, name)
    return stand.rows("SELECT is_deleted FROM feedback WHERE feedback_id = ?", given) != [(0,)]


@attack("feedback of another key is replaced by its id")
def _replaced(stand: Stand) -> bool:
    name = stand.said()
    given = _rate(stand, "voter", name)
    stand.joined(given, name)
    for own in (given, given.rpartition(":")[2]):
        _rate(stand, "both", name, rating="down", id=own)
    stand.joined(given, name)
    return stand.rows("SELECT rating FROM feedback WHERE feedback_id = ?", given) != [(1.0,)]


@attack("stored feedback of another tenant is read")
def _read(stand: Stand) -> bool:
    name = stand.said()
    given = _rate(stand, "voter", name, comment="secret words")
    stand.joined(given, name)
    return "secret words" in stand.ask("GET", f"/v1/feedback?target={name}", "foreigner").text


def _token(stand: Stand, target: str) -> str:
    return str(stand.ask("POST", "/v1/feedback/tokens", "voter", {"target": target}).json()["token"])


@attack("a vote token is used on another reply")
def _other(stand: Stand) -> bool:
    return bool(_rate(stand, _token(stand, stand.said()), stand.said()))


@attack("a vote token is altered")
def _altered(stand: Stand) -> bool:
    name = stand.said()
    token = _token(stand, name)
    at = len(token) // 3
    forged = f"{token[:at]}{'A' if token[at] != 'A' else 'B'}{token[at + 1 :]}"
    return bool(_rate(stand, forged, name)) or bool(_rate(stand, token.partition(".")[0] + ".", name))


@attack("a vote token votes a hundred times")
def _often(stand: Stand) -> bool:
    name = stand.said()
    token = _token(stand, name)
    given = [_rate(stand, token, name, rating=rating) for rating in ("up", "down") * 5]
    stand.joined(given[0], name)
    return bool(stand.rows("SELECT count(*) FROM feedback WHERE target = ?", name)[0][0] > 1)


@attack("a vote token talks")
def _talks(stand: Stand) -> bool:
    return stand.chat(_token(stand, stand.said())).status_code == 200


@attack("a key without the scope makes user tokens")
def _mint(stand: Stand) -> bool:
    return stand.ask("POST", "/v1/users/tokens", "both", {"user": "ann"}).status_code == 200


@attack("a text of thirty thousand line breaks keeps the ingester busy")
def _slow(stand: Stand) -> bool:
    began = time.monotonic()
    first = {"role": "user", "content": f"x {next(stand.counter)}"}
    name = stand.said(messages=[first, {"role": "assistant", "content": "\n" * 30_000 + "x"}, *HELLO])
    is_filed = stand.row("SELECT 1 FROM interaction WHERE interaction_id = ?", name, seconds=60.0) is not None
    return not is_filed or time.monotonic() - began > 5.0
