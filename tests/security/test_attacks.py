"""The fast part of `python -m benchmarks.security`: attacks and malformed requests against real processes."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from benchmarks.security import malformed
from benchmarks.security.attacking import secrets_found
from benchmarks.security.attacks import ATTACKS, remote, succeeded
from benchmarks.security.attacks.stand import Stand, standing

FAST = ("access", "fields", "local", "settings", "wire")
"""Modules of attacks that wait for nobody. Those on whose words count have unit tests (test_bound_users.py and others),
and those by imports too (test_import_archives.py).
"""
SLOW = {"a slow head keeps its connection for half a minute", "tools' texts stay in memory"}


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with standing(tmp_path_factory.mktemp("stand")) as made:
        yield made


def test_no_attack_succeeds(stand: Stand) -> None:
    succeeded(stand, [])  # files the attacks
    assert len(ATTACKS) + len(remote.ATTACKS) >= 60 and set(ATTACKS) >= SLOW
    modules = {name: getattr(found, "func", found).__module__.rpartition(".")[2] for name, found in ATTACKS.items()}
    names = [name for name, module in modules.items() if module in FAST and name not in SLOW]
    assert len(names) >= 60 and set(FAST) < set(modules.values())
    assert succeeded(stand, names) == []
    assert secrets_found(stand) == 0


def test_what_the_attacks_try_works_for_whoever_may_do_it(stand: Stand) -> None:
    """Otherwise an attack could fail for a reason of its own."""
    assert stand.chat(fields={"temperature": 0.5}).is_success and stand.engine.requests[-1]["temperature"] == 0.5
    name = stand.said("both")
    given = stand.ask("POST", "/v1/feedback", "both", {"target": name, "rating": "up"}).json()["id"]
    assert stand.joined(given, name)
    set_to = {"settings": {"learner.min_rows": 9}}
    assert stand.ask("POST", "/admin/agents/second/set", "operator", set_to).is_success
    assert stand.ask("GET", f"/admin/turns/{name}", "operator").is_success
    assert stand.ask("POST", "/v1/users/tokens", "backend", {"user": "ann"}).is_success
    assert b"200" in stand.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert stand.ask("POST", "/admin/agents", "operator", {"name": "third"}).is_success


def test_malformed_requests_are_answered(stand: Stand) -> None:
    counts, bad = asyncio.run(malformed.send(stand, random.Random("fast"), 150))
    assert sum(counts.values()) > 100 and len(counts) > 4
    assert bad == []
    assert stand.chat().status_code == 200
