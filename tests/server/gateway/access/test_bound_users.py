"""Who a turn's user is: proved by a key made for the user, by a signed token, or named by a key that may name users."""

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateways import ENGINE_KEY, HELLO, Running, error_of, make_keys, serve, write_table

from burnish import serving_table
from burnish.adapters.registry.personal import name_of
from burnish.config import Personal, Settings
from burnish.errors import RequestError
from burnish.journal import Journal
from burnish.journal.tables import FeedbackRow, InteractionRow
from burnish.keys import MAX_USER, Scope, mint
from burnish.learner.data import caps
from burnish.learner.data.caps import Voice
from burnish.records import digest_of_voice, who_of
from burnish.server.gateway.access import keyring
from burnish.server.gateway.admin import admin_app
from burnish.server.ingest import ingester
from burnish.server.ingest.ingester import Ingester
from burnish.serving_table import AgentRoute, Routes
from burnish.testing import StubEngine
from tests.journals import any_journal, journal_url, migrated_file, sqlite_url

__all__ = ["any_journal", "journal_url", "migrated_file", "sqlite_url"]
ANNS, BOBS = name_of("default", "agent", "ann"), name_of("default", "agent", "bob")
TOKENS = "/v1/users/tokens"
BOTH = [Scope.INFERENCE, Scope.FEEDBACK]
KEYS: dict[str, dict[str, Any]] = {
    "ann": {"scopes": BOTH, "user": "ann"},
    "ann too": {"scopes": BOTH, "user": "ann"},
    "bob": {"scopes": BOTH, "user": "bob"},
    "back end": {"scopes": [*BOTH, Scope.USERS]},
    "narrow": {"scopes": [Scope.INFERENCE, Scope.USERS], "agents": ["agent"]},
    "minter": {"scopes": [Scope.USERS]},
    "brisk": {"scopes": [*BOTH, Scope.USERS], "requests_per_minute": 8},
    "slow ann": {"scopes": BOTH, "user": "ann", "requests_per_minute": 2},
    "slow ann too": {"scopes": BOTH, "user": "ann", "requests_per_minute": 2},
}


@dataclass
class House:
    """A gateway where ann and bob have personal agents."""

    running: Running
    keys: dict[str, Any] = field(default_factory=dict)
    agents: dict[str, AgentRoute] = field(default_factory=dict)
    revoked: dict[str, float] = field(default_factory=dict)

    def write(self, without: str | None = None) -> None:
        """Write the serving table, perhaps without one of the keys."""
        keys = {key.digest: key for name, key in self.keys.items() if name != without}
        write_table(self.running.settings, (self.running.engine.url,), keys, agents=self.agents, revoked=self.revoked)

    def token(self, key: str = "back end", user: str = "ann", **wish: Any) -> str:
        with self.running.client(key) as client:
            answer = client.post(TOKENS, json={"user": user, **wish})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["token"])

    def speaks(self, key: str | None, **asked: Any) -> str:
        """The agent that answers."""
        reply = self.running.chat(key, **asked)
        assert reply.status_code == 200, reply.text
        return str(reply.headers["x-burnish-version"]).partition("@")[0]

    @property
    def last(self) -> tuple[str | None, str | None]:
        """The user of the last turn: as proved, and as quoted."""
        turn = max(self.running.interactions, key=lambda turn: turn.ended_at)
        return turn.user, turn.quoted_user


@pytest.fixture
def house(tmp_path: Path, engine: StubEngine) -> Iterator[House]:
    with serve(tmp_path, engine, personal=Personal(enabled=True)) as running:
        made = House(running)
        running.secrets, given = make_keys()
        made.keys = {key.name: key for key in given.values()}
        for name, terms in KEYS.items():
            running.secrets[name], made.keys[name] = mint(**terms, name=name)
        made.agents = {
            "agent": AgentRoute("agent", live=2, loaded=(2,)),
            "second": AgentRoute("second"),
            ANNS: AgentRoute(ANNS, parent="agent", user="ann"),
            BOBS: AgentRoute(BOBS, parent="agent", user="bob"),
        }
        made.write()
        yield made


@pytest.mark.parametrize("key", ["talker", "limited", None])
def test_an_invented_name_reaches_nobodys_agent(house: House, key: str | None) -> None:
    for asked in ({"headers": {"x-burnish-user": "ann"}}, {"user": "ann"}):
        assert house.speaks(key, **asked) == "agent"
        assert house.last == (None, "ann")


@pytest.mark.parametrize("name", ["ann", "bob", ""])
def test_a_key_for_a_user_is_that_user_whatever_is_said(house: House, name: str) -> None:
    assert house.speaks("ann", headers={"x-burnish-user": name}, user=name) == ANNS
    assert house.last == ("ann", name or None)


def test_a_token_is_its_user_whatever_is_said(house: House) -> None:
    token = house.token()
    for _ in range(2):
        assert house.speaks(token, headers={"x-burnish-user": "bob"}) == ANNS
        assert house.last == ("ann", "bob")
    assert house.speaks(house.token(user="bob")) == BOBS


@pytest.mark.parametrize("key", ["back end", "admin"])
def test_a_key_with_the_scope_users_names_them(house: House, key: str) -> None:
    assert house.speaks(key, user="ann") == ANNS
    assert house.last == ("ann", "ann")
    assert house.speaks(key, headers={"x-burnish-user": "bob"}, user="ann") == BOBS
    assert house.speaks(key) == "agent"
    assert house.last == (None, None)


def test_a_long_name_is_refused_where_it_would_be_believed(house: House) -> None:
    long = "a" * (MAX_USER + 1)
    assert error_of(house.running.chat("back end", user=long), 400)["param"] == "user"
    with house.running.client("back end") as client:
        body = {"model": "agent", "max_tokens": 9, "messages": HELLO, "metadata": {"user_id": long}}
        assert client.post("/v1/messages", json=body).json()["error"]["type"] == "invalid_request_error"
    assert house.speaks("talker", user=long) == "agent"


def test_the_laptop_needs_no_key(house: House) -> None:
    assert house.speaks(None) == "agent"
    (turn,) = house.running.interactions
    assert turn.may_train and turn.user is None and turn.key_id == "open"


@pytest.mark.parametrize("key", ["talker", "voter", "ann", "operator", "viewer", None])
def test_only_the_scope_users_makes_tokens(house: House, key: str | None) -> None:
    with house.running.client(key) as client:
        error_of(client.post(TOKENS, json={"user": "ann"}), 401 if key is None else 403)


def test_a_token_makes_no_tokens(house: House) -> None:
    with house.running.client(house.token("admin")) as client:
        assert error_of(client.post(TOKENS, json={"user": "bob"}), 403)["code"] == "wrong_scope"


def test_a_token_allows_no_more_than_its_key(house: House) -> None:
    assert house.running.chat(house.token("minter")).status_code == 403
    narrow = house.token("narrow")
    assert house.speaks(narrow) == ANNS
    assert house.running.chat(narrow, model="second").status_code == 403
    with house.running.client(narrow) as client:
        kept = client.post("/v1/feedback", json={"target": "x", "rating": "up"})
    assert kept.status_code == 202 and house.running.feedback[-1].source == "harness"
    with house.running.client("narrow") as client:
        refused = client.post(TOKENS, json={"user": "ann", "agents": ["agent", "second"]})
    assert error_of(refused, 403)["code"] == "model_not_allowed"
    assert house.running.chat(house.token(agents=["second"])).status_code == 403


@pytest.mark.parametrize(
    ("wish", "param"),
    [
        ({}, None),
        ({"user": ""}, "user"),
        ({"user": "a\nb"}, "user"),
        ({"user": "a" * (MAX_USER + 1)}, "user"),
        ({"user": "ann", "ttl_seconds": 0}, "ttl_seconds"),
        ({"user": "ann", "ttl_seconds": 86_401}, "ttl_seconds"),
        ({"user": "ann", "agents": ["a"] * 21}, "agents"),
        ({"user": "ann", "scopes": ["admin"]}, None),
    ],
)
def test_a_bad_wish_is_named(house: House, wish: dict[str, Any], param: str | None) -> None:
    with house.running.client("back end") as client:
        error = error_of(client.post(TOKENS, json=wish), 400)
    assert param is None or error["param"] == param


def test_a_token_ends(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    token = house.token(ttl_seconds=60)
    assert house.speaks(token) == ANNS
    now = keyring.time.time()
    monkeypatch.setattr(keyring.time, "time", lambda: now + 61.0)
    assert error_of(house.running.chat(token), 401)["code"] == "expired_token"


def test_a_token_ends_with_its_key(house: House) -> None:
    token = house.token()
    assert house.speaks(token) == ANNS
    house.write(without="back end")
    assert error_of(house.running.chat(token), 401)["code"] == "revoked_token"


def test_the_tokens_of_one_user_can_be_revoked(house: House) -> None:
    anns, bobs = house.token(), house.token(user="bob")
    assert house.speaks(anns) == ANNS
    house.revoked = {digest_of_voice(("default", "user", "ann")): time.time()}
    house.write()
    assert error_of(house.running.chat(anns), 401)["code"] == "revoked_token"
    assert house.speaks(bobs) == BOBS
    assert house.speaks(house.token()) == ANNS, "a token that is made later is valid"


def test_a_users_vote_tokens_are_revoked_with_them(house: House) -> None:
    def made(token: str) -> str:
        with house.running.client(token) as client:
            return str(client.post("/v1/feedback/tokens", json={"target": "x"}).json()["token"])

    def voted(token: str) -> httpx.Response:
        with house.running.client(token) as client:
            return client.post("/v1/feedback", json={"target": "x", "rating": "up"})

    anns, bobs = made(house.token()), made(house.token(user="bob"))
    assert voted(anns).status_code == 202
    house.revoked = {digest_of_voice(("default", "user", "ann")): time.time()}
    house.write()
    assert error_of(voted(anns), 401)["code"] == "revoked_token"
    assert voted(bobs).status_code == 202
    assert voted(made(house.token())).status_code == 202, "a token that is made later is valid"


def test_a_token_cannot_be_made_or_changed_by_others(house: House) -> None:
    payload, _, signature = house.token().removeprefix("but-").partition(".")
    grant = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    grant[grant.index("ann")] = "bob"
    forged = base64.urlsafe_b64encode(json.dumps(grant).encode()).rstrip(b"=").decode()
    with house.running.client("back end") as client:
        vote = client.post("/v1/feedback/tokens", json={"target": "x"}).json()["token"].removeprefix("bft-")
    for token in (f"but-{forged}.{signature}", f"but-{payload}.", "but-", f"but-{payload}.{signature}x", f"but-{vote}"):
        assert error_of(house.running.chat(token), 401)["code"] == "invalid_token", token


def test_a_token_is_verified_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    read = keyring.UserTokens.read
    monkeypatch.setattr(keyring.UserTokens, "read", lambda self, token: counted.append(token) or read(self, token))
    monkeypatch.setattr(keyring, "MAX_KNOWN", 2)
    tokens = [house.token(user=user) for user in ("ann", "bob")]
    for _ in range(3):
        assert [house.speaks(token) for token in tokens] == [ANNS, BOBS]
    assert counted == tokens
    house.speaks(house.token(user="eve"))
    assert house.speaks(tokens[0]) == ANNS
    assert len(counted) == 4  # the third token took the place of both others


@pytest.mark.parametrize(
    ("scopes", "user"),
    [([Scope.USERS], "ann"), ([Scope.ADMIN], "ann"), ([Scope.VIEWER], "ann"), (BOTH, " "), (BOTH, "\n")],
)
def test_a_key_for_a_user_is_a_users(scopes: list[Scope], user: str) -> None:
    with pytest.raises(RequestError, match=r"expected 1 to 512|inference, feedback or both"):
        mint(scopes, user=user)


def test_limits_count_the_user_under_any_key(house: House) -> None:
    eve, eves, fay = (house.token("brisk", user=user) for user in ("eve", "eve", "fay"))  # three of the key's eight
    assert [house.running.chat(token).status_code for token in (eve, eves)] == [200, 200]
    assert [house.running.chat("brisk", user="eve").status_code for _ in range(2)] == [200, 200]  # the key is believed
    for key in (eves, "brisk"):
        assert "user eve with key" in error_of(house.running.chat(key, user="eve"), 429)["message"]
    assert error_of(house.running.chat(fay), 429)["message"].startswith("key ")
    assert [house.running.chat(key).status_code for key in ("slow ann", "slow ann too", "slow ann")] == [200, 200, 429]


def test_twelve_invented_names_are_one_voice(house: House) -> None:
    """One key with twelve names beside three others fills no more of a step than one user may."""
    for number in range(12):
        house.speaks("talker", user=f"name {number}")
    for key in ("ann", "bob", "limited"):
        house.speaks(key)
    voices = [Voice(who_of(turn.tenant, turn.key_id, turn.user), None, 1.0) for turn in house.running.interactions]
    found = caps.weights(voices, user=0.25, session=1.0, new_users=1.0)
    assert sum(found[:12]) / sum(found) == pytest.approx(0.25)


def test_a_user_is_one_voice_under_any_key(house: House) -> None:
    for key in ("ann", "ann too", house.token()):
        house.speaks(key)
    house.speaks("back end", user="ann")
    assert {who_of(turn.tenant, turn.key_id, turn.user) for turn in house.running.interactions} == {
        ("default", "user", "ann")
    }


@dataclass
class Whole:
    """A gateway with its journal."""

    house: House
    journal: Journal

    def ingest(self) -> None:
        Ingester(self.journal, self.house.running.settings.segments_dir, session_timeout=3600.0).run_once()

    def say(self, key: str, target: str, **opinion: Any) -> str:
        with self.house.running.client(key) as client:
            answer = client.post("/v1/feedback", json={"target": target, "rating": "up", **opinion})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def joined(self) -> dict[str, str | None]:
        with self.journal.read() as session:
            return {row.feedback_id: row.interaction_id for row in session.query(FeedbackRow)}


@pytest.fixture
def whole(tmp_path: Path, any_journal: Journal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Whole]:
    monkeypatch.setattr(ingester, "SETTLE_SECONDS", -1.0)
    stub = StubEngine(api_key=ENGINE_KEY)
    behind = admin_app(Settings(state_dir=tmp_path), any_journal)
    with stub, serve(tmp_path, stub, fallback=behind) as running:
        made = House(running)
        running.secrets, given = make_keys()
        made.keys = {key.name: key for key in given.values()}
        for name, terms in KEYS.items():
            running.secrets[name], made.keys[name] = mint(**terms, name=name)
        made.agents = {"agent": AgentRoute("agent")}
        made.write()
        yield Whole(made, any_journal)


@pytest.mark.parametrize("is_early", [False, True])
@pytest.mark.parametrize("about", ["response", "session"])
def test_a_users_word_counts_for_the_users_own_turns(whole: Whole, is_early: bool, about: str) -> None:
    house = whole.house
    token = house.token(user="bob")
    headers = {"x-burnish-session": "walk"}
    if is_early:
        reply = "walk"
        about = "session"
    else:
        reply = house.running.chat("ann", headers=headers).json()["id"]
        whole.ingest()
    target = reply if about == "response" else "walk"
    right = [whole.say(key, target, about=about) for key in ("ann", "ann too", "voter")]
    wrong = [whole.say(key, target, about=about) for key in ("bob", token)]
    if is_early:
        whole.ingest()
        house.running.chat("ann", headers=headers)
    whole.ingest()
    joined = whole.joined()
    assert [joined[name] is not None for name in (*right, *wrong)] == [True, True, True, False, False]


def test_a_vote_token_that_a_user_made_is_the_users(whole: Whole) -> None:
    house = whole.house
    reply = house.running.chat("ann").json()["id"]
    for key, is_own in ((house.token(), True), (house.token(user="bob"), False), ("ann", True), ("bob", False)):
        with house.running.client(key) as client:
            made = client.post("/v1/feedback/tokens", json={"target": reply}).json()["token"]
        said = whole.say(made, reply)
        whole.ingest()
        assert (whole.joined()[said] is not None) is is_own


def test_users_see_and_take_back_their_own_words_under_any_key(whole: Whole) -> None:
    house = whole.house
    reply = house.running.chat("ann").json()["id"]
    said = whole.say("ann", reply, id="one")
    of_token = whole.say(house.token(user="bob"), reply, id="one")
    of_back_end = whole.say("back end", reply, id="one")
    assert len({said, of_token, of_back_end}) == 3
    whole.ingest()

    def seen(key: str, name: str, method: str = "GET") -> int:
        with house.running.client(key) as client:
            return client.request(method, f"/v1/feedback/{name}").status_code

    assert [seen(key, said) for key in ("ann", "ann too", house.token())] == [200, 200, 200]
    assert [seen(key, said) for key in ("bob", "voter", "back end", house.token(user="bob"))] == [404] * 4
    assert [seen(key, of_token) for key in ("bob", house.token(user="bob"), "back end", "viewer")] == [200] * 4
    assert [seen(key, of_token, "DELETE") for key in ("ann", house.token(), "bob")] == [404, 404, 202]
    with house.running.client("bob") as client:
        assert [each["id"] for each in client.get(f"/v1/feedback?target={reply}").json()["feedback"]] == [of_token]


def test_two_users_who_quote_one_session_do_not_meet(whole: Whole) -> None:
    house = whole.house
    for user in ("ann", "bob"):
        house.running.chat(house.token(user=user), headers={"x-burnish-session": "walk"}, user="same")
    whole.ingest()
    with whole.journal.read() as session:
        rows = list(session.query(InteractionRow))
    assert len({row.session_id for row in rows}) == 2
    assert {(row.user, row.quoted_user) for row in rows} == {("ann", "same"), ("bob", "same")}


def test_a_table_of_before_has_keys_without_users(tmp_path: Path) -> None:
    _, key = mint([Scope.INFERENCE])
    serving_table.write(tmp_path / "routes.json", Routes(keys={key.digest: key}))
    tree = json.loads((tmp_path / "routes.json").read_text())
    del tree["keys"][0]["user"]
    assert serving_table.parse(tree).keys[key.digest] == key
