"""The users' pauses in a demo."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from burnish.sandbox.demo import traffic, worlds
from burnish.sandbox.demo.facts import Pulse
from burnish.sandbox.demo.traffic import Pauses

IDLE = Pulse(
    n_recorded=20,
    n_ready=4,
    n_spent=16,
    n_judging=0,
    n_published=1,
    n_refused=0,
    is_open=False,
    is_on_trial=False,
    live=1,
)


@pytest.mark.parametrize(
    ("pulse", "has_step"),
    [
        (IDLE, False),
        (replace(IDLE, n_ready=16), True),
        (replace(IDLE, is_open=True), True),
        (replace(IDLE, is_open=True, is_on_trial=True), False),
        (replace(IDLE, is_open=True, is_on_trial=True, n_ready=16), True),
    ],
)
def test_a_step_is_training_or_enough_ready_replies(pulse: Pulse, has_step: bool) -> None:
    assert pulse.has_step(16) is has_step


def pauses(world: worlds.World, has_step: Callable[[], bool]) -> Pauses:
    return Pauses(replace(world, think_seconds=(0.0, 0.0)), 0, has_step)


def test_users_of_the_real_model_wait_for_a_step() -> None:
    answers = iter([True, True, False])
    asyncio.run(pauses(worlds.english(), lambda: next(answers)).wait())
    assert not list(answers)


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "LONGEST_WAIT", 0.0)
    asyncio.run(pauses(worlds.english(), lambda: True).wait())


def test_users_of_the_toy_model_do_not_wait() -> None:
    asyncio.run(pauses(worlds.sandbox(), lambda: pytest.fail("nobody asks")).wait())
