"""Opt-outs: a request, a key and a user can keep turns out of training, or out of the journal."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from burnish import serving_table as table
from burnish.adapters.serving.prepare import prepare, refresh
from burnish.adapters.verbs import privacy
from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.tables import InteractionRow
from burnish.keys import Scope, mint
from burnish.records import digest_of_voice
from burnish.serving_table import Routes
from burnish.testing import StubEngine
from tests.factories import interaction, user
from tests.server.gateway.gateways import ENGINE_KEY, Running, serve
from tests.turns import add_turn

HEADERS = {"x-burnish-record": "false"}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Running]:
    loaded = {"agent@v1": "/a/1", "agent@v2": "/a/2"}
    with StubEngine(api_key=ENGINE_KEY, loaded=loaded) as stub, serve(tmp_path, stub) as running:
        yield running


def change(gateway: Running, **changes: Any) -> None:
    def changed(routes: Routes) -> Routes:
        return replace(routes, **changes)

    table.update(gateway.settings.run_dir / "routes.json", changed)


def add_key(gateway: Running, name: str, **terms: Any) -> None:
    gateway.secrets[name], key = mint([Scope.INFERENCE, *terms.pop("scopes", ())], **terms)
    routes = table.watch(gateway.settings.run_dir / "routes.json").current()
    change(gateway, keys={**routes.keys, key.digest: key})


def outcome(gateway: Running, key: str, **given: Any) -> str:
    """What becomes of one turn: `trains`, `recorded` or `nothing`."""
    before = len(gateway.interactions)
    assert gateway.chat(key, **given).status_code == 200
    after = gateway.interactions[before:]
    if not after:
        return "nothing"
    return "trains" if after[0].may_train else "recorded"


def test_a_request_can_keep_itself_out(gateway: Running) -> None:
    for headers, n_recorded in ((HEADERS, 0), ({"x-burnish-train": "false"}, 1), ({"x-burnish-record": "true"}, 2)):
        for is_stream in (False, True):
            before = len(gateway.interactions)
            assert gateway.chat("talker", headers=headers, stream=is_stream).status_code == 200
            assert (len(gateway.interactions) > before) == bool(n_recorded)
    assert {turn.may_train for turn in gateway.interactions} == {False, True}


@pytest.mark.parametrize(
    ("terms", "expected"),
    [({}, "trains"), ({"may_train": False}, "recorded"), ({"may_record": False}, "nothing")],
)
def test_a_key_decides_for_all_its_turns(gateway: Running, terms: dict[str, bool], expected: str) -> None:
    add_key(gateway, "made", **terms)
    assert outcome(gateway, "made") == expected
    assert gateway.chat("made", headers={"x-burnish-record": "true", "x-burnish-train": "true"}).status_code == 200
    assert outcome(gateway, "made") == expected


@pytest.mark.parametrize(("may_record", "expected"), [(True, "recorded"), (False, "nothing")])
def test_a_user_decides_under_every_key(gateway: Running, may_record: bool, expected: str) -> None:
    add_key(gateway, "ann", user="ann")
    add_key(gateway, "back end", scopes=[Scope.USERS])
    change(gateway, opt_outs={digest_of_voice(("default", "user", "ann")): may_record})
    assert outcome(gateway, "ann") == expected
    assert outcome(gateway, "back end", user="ann") == expected
    assert outcome(gateway, "talker", user="ann") == expected
    assert outcome(gateway, "back end", user="bob") == outcome(gateway, "talker") == "trains"


@pytest.mark.parametrize("is_batch", [False, True])
def test_feedback_of_whoever_opted_out_of_recording_is_not_stored(gateway: Running, is_batch: bool) -> None:
    add_key(gateway, "ann", scopes=[Scope.FEEDBACK], user="ann")
    add_key(gateway, "bob", scopes=[Scope.FEEDBACK], user="bob")
    add_key(gateway, "silent", scopes=[Scope.FEEDBACK], may_record=False)
    add_key(gateway, "untrained", scopes=[Scope.FEEDBACK], may_train=False)
    change(gateway, opt_outs={digest_of_voice(("default", "user", user)): user == "bob" for user in ("ann", "bob")})
    said = {"target": "chatcmpl-1", "comment": "c", "correction": "k", "demonstration": "d"}
    path, body = ("/v1/feedback/batch", {"feedback": [said]}) if is_batch else ("/v1/feedback", said)
    for key, headers, is_stored in (
        ("ann", {}, False),
        ("silent", {}, False),
        ("voter", HEADERS, False),
        ("voter", {}, True),
        ("bob", {}, True),
        ("untrained", {}, True),
    ):
        before = len(gateway.feedback)
        with gateway.client(key) as client:
            answer = client.post(path, json=body, headers=headers)
        assert answer.status_code == 202, answer.text
        (told,) = answer.json()["feedback"] if is_batch else [answer.json()]
        assert (told["target"], told["status"]) == ("chatcmpl-1", "pending" if is_stored else "unrecorded")
        assert len(gateway.feedback) == before + is_stored, key


def test_a_vote_token_keeps_its_users_opt_out(gateway: Running) -> None:
    add_key(gateway, "ann", scopes=[Scope.FEEDBACK], user="ann")
    with gateway.client("ann") as client:
        gateway.secrets["vote"] = client.post("/v1/feedback/tokens", json={"target": "chatcmpl-1"}).json()["token"]
    change(gateway, opt_outs={digest_of_voice(("default", "user", "ann")): False})
    with gateway.client("vote") as client:
        answer = client.post("/v1/feedback", json={"target": "chatcmpl-1", "rating": "down", "comment": "c"})
    assert answer.json()["status"] == "unrecorded" and not gateway.feedback


def test_a_token_keeps_its_keys_opt_out(gateway: Running) -> None:
    add_key(gateway, "back end", scopes=[Scope.USERS], may_record=False)
    with gateway.client("back end") as client:
        gateway.secrets["token"] = client.post("/v1/users/tokens", json={"user": "ann"}).json()["token"]
    assert outcome(gateway, "token") == "nothing"


def test_an_opt_out_reaches_the_table_and_the_turns_that_wait(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    journal: Journal = prepare(settings)
    who = ("default", "user", "ann")
    waits = add_turn(journal, interaction([user("hi")], user="ann"), is_ready=True)
    spent = add_turn(journal, interaction([user("hi")], user="ann"), spent_step=1)
    other = add_turn(journal, interaction([user("hi")], user="bob"), is_ready=True)
    with journal.write() as session:
        assert privacy.opt_out(session, who, may_record=False, actor="test") == 1
    assert refresh(settings, journal).opt_outs == {digest_of_voice(who): False}
    with journal.read() as session:
        found = {name: session.get_one(InteractionRow, name) for name in (waits, spent, other)}
    assert [(row.may_train, row.skip_reason) for row in found.values()] == [
        (False, "opted out"),
        (False, None),
        (True, None),
    ]
    with journal.write() as session:
        assert privacy.opt_in(session, who, actor="test")
        assert not privacy.opt_in(session, who, actor="test")
    assert refresh(settings, journal).opt_outs == {}
