"""Request ids: in the order of time, unlike one another, and not to be guessed."""

import re

import pytest

from burnish.server.gateway.http import request_ids
from burnish.server.gateway.http.request_ids import RequestIds


def test_ids_are_in_the_order_of_time_and_never_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_795_000_000.0
    monkeypatch.setattr(request_ids.time, "time", lambda: now)
    first, second = RequestIds(), RequestIds()
    made = []
    for step in range(1000):
        now = 1_795_000_000.0 + step // 10
        made += [first.take(), second.take()]
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in made)
    assert len(set(made)) == 2000
    assert [each[:12] for each in made] == sorted(each[:12] for each in made)
    assert len({each[12:] for each in made}) == 2000  # the rest is chance, whatever the time
