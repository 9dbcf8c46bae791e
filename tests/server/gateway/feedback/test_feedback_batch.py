"""Feedback on many replies in one request: all or nothing, with the place of the error."""

from typing import Any

import httpx
import pytest
from gateways import Running, error_of

BATCH = "/v1/feedback/batch"


def post(gateway: Running, items: Any, key: str | None = "voter") -> httpx.Response:
    with gateway.client(key) as client:
        return client.post(BATCH, json={"feedback": items})


def test_each_opinion_is_written_as_if_it_came_alone(gateway: Running) -> None:
    items = [{"target": f"chatcmpl-{n}", "rating": "up" if n % 2 else -0.5, "id": f"v{n}"} for n in range(1000)]
    response = post(gateway, items)
    assert response.status_code == 202
    rows = gateway.feedback
    assert [row["id"] for row in response.json()["feedback"]] == [row.feedback_id for row in rows]
    assert [(row.target, row.rating, row.source) for row in rows[:2]] == [
        ("chatcmpl-0", -0.5, "user"),
        ("chatcmpl-1", 1.0, "user"),
    ]
    assert len(rows) == 1000


@pytest.mark.parametrize(
    ("item", "place"),
    [
        ({"target": "x", "rating": "sideways"}, "feedback[1].rating"),
        ({"target": "x", "rating": 2}, "feedback[1].rating"),
        ({"target": "x"}, "feedback[1]: nothing said"),
        ({"rating": "up"}, "feedback[1]"),
        ({"target": "x", "rating": "up", "source": "user"}, "feedback[1]"),
        ("up", "feedback[1]"),
    ],
)
def test_one_bad_opinion_leaves_nothing_written(gateway: Running, item: Any, place: str) -> None:
    error = error_of(post(gateway, [{"target": "a", "rating": "up"}, item]), 400)
    assert place in error["message"]
    assert gateway.feedback == []


@pytest.mark.parametrize("items", [[], [{"target": "x", "rating": "up"}] * 1001, None, {}, "x"])
def test_a_batch_has_one_to_a_thousand(gateway: Running, items: Any) -> None:
    error_of(post(gateway, items), 400)
    assert gateway.feedback == []


def test_a_key_that_may_only_talk_speaks_for_its_harness(gateway: Running) -> None:
    assert post(gateway, [{"target": "a", "rating": "up"}], "talker").status_code == 202
    assert [row.source for row in gateway.feedback] == ["harness"]
