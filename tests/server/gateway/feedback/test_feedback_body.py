"""Feedback on a reply, a request or a session, and who may give it. Everything else is a 400 that names the field."""

from typing import Any

import httpx
import pytest
from gateways import Running, error_of

from burnish.records import FeedbackSource, TargetKind, id_without_words


def say(gateway: Running, key: str | None = "voter", **body: Any) -> httpx.Response:
    with gateway.client(key) as client:
        return client.post("/v1/feedback", json={"target": "chatcmpl-1", **body})


def test_everything_that_can_be_said_is_written_as_it_was_said(gateway: Running) -> None:
    body = {"about": "turn", "rating": 0.25, "score": 0.75, "outcome": True, "label": "order placed", "comment": "c"}
    response = say(gateway, **body, correction="k", demonstration="d", id="mine")
    (row,) = gateway.feedback
    assert response.status_code == 202
    assert response.json() == {"id": row.feedback_id, "target": "chatcmpl-1", "about": "turn", "status": "pending"}
    assert (row.about, row.source, row.is_deleted) == (TargetKind.TURN, FeedbackSource.USER, False)
    assert (row.rating, row.score, row.outcome, row.label) == (0.25, 0.75, 1.0, "order placed")
    assert (row.comment, row.correction, row.demonstration) == ("c", "k", "d")


def test_an_id_of_the_clients_own_is_kept_as_a_digest(gateway: Running) -> None:
    """It is free text, and the id goes into steps, manifests and the place of the traces."""
    names = [say(gateway, rating=rating, id="Ann Smith, 12 May").json()["id"] for rating in (1, -1)]
    assert names == [row.feedback_id for row in gateway.feedback] and names[0] == names[1]
    prefix, _, own = names[0].partition(":")
    assert prefix == gateway.feedback[0].key_id and len(own) == 32 and "Ann" not in own
    assert id_without_words(names[0]) == names[0]


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ({"score": 0}, {"score": 0.0, "rating": None, "outcome": None}),
        ({"score": 1}, {"score": 1.0}),
        ({"outcome": False}, {"outcome": -1.0, "score": None, "label": None}),
        ({"outcome": -0.5, "label": "half of the tests"}, {"outcome": -0.5, "label": "half of the tests"}),
        ({"demonstration": "Hi."}, {"demonstration": "Hi.", "correction": None}),
        ({"correction": "Hi."}, {"correction": "Hi.", "rating": None}),
        ({"rating": 0, "comment": ""}, {"rating": 0.0, "comment": ""}),
    ],
)
def test_one_thing_is_enough_and_the_rest_stays_absent(gateway: Running, said: Any, stored: Any) -> None:
    assert say(gateway, about="session", **said).status_code == 202
    (row,) = gateway.feedback
    assert row.about is TargetKind.SESSION
    assert {name: getattr(row, name) for name in stored} == stored


WRONG: dict[str, list[Any]] = {
    "target": [None, 7, "", [], "x" * 513],
    "about": [None, 7, "reply", "", ["turn"]],
    "rating": ["great", 1.5, -2, [], {}],
    "score": [True, "0.5", -0.1, 1.1, []],
    "outcome": ["good", 1.5, -1.01, {}],
    "label": [7, True, [], "x" * 257],
    "comment": [7, False, [], {}, "x" * 20_001],
    "correction": [7, ["x"], "x" * 100_001],
    "demonstration": [7, {"role": "assistant"}, "x" * 100_001],
    "id": [7, "", [], "x" * 257],
    "source": ["user", "harness", "Verifier", 7, ""],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in WRONG.items() for value in values])
@pytest.mark.parametrize("place", ["", "feedback[1]."])
def test_every_field_of_a_wrong_type_or_size_is_named(shared: Running, field: str, value: Any, place: str) -> None:
    body = {"target": "t", "rating": "up", "outcome": 1, field: value}
    before = len(shared.feedback)
    with shared.client("admin") as client:
        if place:
            response = client.post("/v1/feedback/batch", json={"feedback": [{"target": "a", "rating": 1}, body]})
        else:
            response = client.post("/v1/feedback", json=body)
    error = error_of(response, 400)
    assert error["param"] == place + field
    assert error["message"].startswith(f"{place}{field}: ")
    assert len(error["message"]) < 400
    assert len(shared.feedback) == before


def test_a_text_that_is_too_long_is_told_how_long_it_is_and_may_be(shared: Running) -> None:
    error = error_of(say(shared, correction="\U0001f600" * 150_000), 400)
    assert error["message"] == "correction: got 150,000 characters, expected at most 100,000"
    assert error_of(say(shared, comment="x" * 5 * 2**20), 413)["code"] == "request_too_large"


def test_the_longest_texts_are_taken_whole(gateway: Running) -> None:
    texts = {"comment": "\U0001f600" * 20_000, "correction": "é" * 100_000, "demonstration": "\0" * 100_000}
    assert say(gateway, **texts).status_code == 202
    (row,) = gateway.feedback
    assert {name: getattr(row, name) for name in texts} == texts


def test_a_label_needs_an_outcome(shared: Running) -> None:
    assert error_of(say(shared, rating="up", label="shipped"), 400)["param"] == "label"


@pytest.mark.parametrize(
    "body", [{}, {"comment": ""}, {"correction": "", "demonstration": ""}, {"label": "x"}, {"id": "x"}]
)
def test_nothing_said_is_a_400(shared: Running, body: dict[str, Any]) -> None:
    error_of(say(shared, **body), 400)


@pytest.mark.parametrize("key", ["operator", "admin"])
def test_a_verifier_speaks_with_an_operators_key(gateway: Running, key: str) -> None:
    assert say(gateway, key, source="verifier", outcome=True, label="tests").status_code == 202
    (row,) = gateway.feedback
    assert (row.source, row.outcome) == (FeedbackSource.VERIFIER, 1.0)


@pytest.mark.parametrize("key", ["voter", "talker", None])
def test_nobody_else_speaks_for_a_verifier(shared: Running, key: str | None) -> None:
    before = len(shared.feedback)
    error = error_of(say(shared, key, source="verifier", outcome=True), 403)
    assert (error["code"], error["param"]) == ("wrong_scope", "source")
    with shared.client(key) as client:
        items = [{"target": "a", "rating": 1}, {"target": "b", "rating": 1, "source": "verifier"}]
        error = error_of(client.post("/v1/feedback/batch", json={"feedback": items}), 403)
    assert error["param"] == "feedback[1].source"
    assert len(shared.feedback) == before


def test_an_operator_is_no_user(shared: Running) -> None:
    assert "verifier" in error_of(say(shared, "operator", rating="up"), 403)["message"]
    error_of(say(shared, "viewer", rating="up"), 403)
