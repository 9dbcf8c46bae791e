"""The decision of a comparison: stopped, passed or skipped, and how turns become pairs."""

import json
import random
from collections.abc import Callable

import pytest

from burnish.adapters.evidence.comparison import (
    MOST_POINTS,
    Comparison,
    Decision,
    Rules,
    Turn,
    decide_canary,
    decide_watch,
)
from burnish.adapters.evidence.sequential import odds
from burnish.records import CanaryState

Make = Callable[[random.Random], Turn]


def turn(reward: bool | None = None, **changes: object) -> Turn:
    fields: dict[str, object] = {"reward": reward, "feedback": None, "tools": None, "length": 50.0, "latency": 1.0}
    return Turn(**fields | changes)  # type: ignore[arg-type]


def rewarded(rate: float) -> Make:
    return lambda chance: turn(chance.random() < rate)


def run(
    baseline: Make, version: Make, n: int, *, seed: int = 0, rate: float | None = None, hours: float = 1.0
) -> Decision:
    """Add `n` turns of the version and nine times as many of the other, of users 1 to 40, until a decision."""
    chance = random.Random(seed)
    seen = Comparison(Rules(), rate)
    for i in range(10 * n):
        is_version = i % 10 == 0
        seen.add(is_version, f"user-{chance.randrange(40)}", (version if is_version else baseline)(chance))
        if i % 100 == 0:
            seen = Comparison.of(Rules(), json.loads(json.dumps(seen.as_dict())))
        if (decision := decide_canary(seen, 0.0)).state is not CanaryState.RUNNING:
            return decision
    return decide_canary(seen, hours)


@pytest.mark.parametrize("rate", [None, 0.8])
def test_a_worse_version_is_stopped_and_the_reason_tells_the_figures(rate: float | None) -> None:
    decision = run(rewarded(0.8), rewarded(0.5), 500, rate=rate)
    assert decision.state is CanaryState.STOPPED
    assert decision.reason.startswith("judged worse: ")
    assert "judged turns good, against " in decision.reason
    assert decision.reason.endswith("to 1 (acts at 200)")


@pytest.mark.parametrize("rate", [None, 0.8])
@pytest.mark.parametrize("of_version", [0.8, 0.9])
def test_an_equal_or_better_version_passes(rate: float | None, of_version: float) -> None:
    decision = run(rewarded(0.8), rewarded(of_version), 800, rate=rate)
    assert decision.state is CanaryState.PASSED
    assert decision.reason.startswith("not worse by 10% or more: ")


def test_nothing_passes_below_the_least_number_of_turns() -> None:
    seen = Comparison(Rules(min_turns=50), rate=0.5)
    for _ in range(49):
        seen.add(True, "u", turn(True))
    assert seen.is_no_worse()
    assert decide_canary(seen, 0.0) == Decision(CanaryState.RUNNING, "49 judged turns so far")
    seen.add(True, "u", turn(True))
    assert decide_canary(seen, 0.0).state is CanaryState.PASSED


def test_too_little_traffic_is_skipped_with_its_size() -> None:
    decision = run(rewarded(0.8), rewarded(0.8), 7, hours=24.0)
    assert decision == Decision(CanaryState.SKIPPED, "too little traffic: 7 judged turns in 24 h, 50 needed")
    undecided = Comparison(Rules(min_turns=3))
    for _ in range(5):
        undecided.add(True, "u", turn(True))
    assert (
        decide_canary(undecided, 25).reason
        == "undecided after 5 judged turns in 25 h: 5 of 5 judged turns good, against 0 of 0"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (lambda c: {"feedback": c.random() < 0.3}, "rated worse in "),
        (lambda c: {"tools": c.random() < 0.3}, "tools worse in "),
        (lambda c: {"length": 400.0 * c.random()}, "replies longer by more than a factor of 1.5"),
        (lambda c: {"latency": 9.0 * c.random()}, "replies slower by more than a factor of 2"),
    ],
)
def test_every_guard_stops_a_version_by_itself(
    changes: Callable[[random.Random], dict[str, object]], said: str
) -> None:
    def sound(chance: random.Random) -> Turn:
        return turn(
            feedback=chance.random() < 0.8,
            tools=chance.random() < 0.8,
            length=100 * chance.random(),
            latency=chance.random(),
        )

    def ill(chance: random.Random) -> Turn:
        made = sound(chance)
        fields = {name: getattr(made, name) for name in Turn.__dataclass_fields__}
        return Turn(**fields | changes(chance))

    decision = run(sound, ill, 600)
    assert decision.state is CanaryState.STOPPED
    assert said in decision.reason
    assert "acts at 800" in decision.reason
    assert run(sound, sound, 300).state is CanaryState.RUNNING


def test_a_turn_meets_the_newest_of_the_other_arm_once() -> None:
    seen = Comparison(Rules())
    for reward in (False, False, True):
        seen.add(False, "u", turn(reward))
    seen.add(True, "u", turn(False))
    assert (seen.pairs["reward"].n_losses, seen.pairs["reward"].n) == (1, 1)
    seen.add(True, "u", turn(False))
    seen.add(True, "u", turn(False))
    assert (seen.pairs["reward"].n_ties, seen.pairs["reward"].n) == (2, 3)
    seen.add(True, "u", turn(True))  # waits
    assert seen.pairs["reward"].n == 3
    seen.add(False, "u", turn(False))
    assert seen.pairs["reward"].n_wins == 1


def test_what_says_nothing_makes_no_pair() -> None:
    seen = Comparison(Rules())
    for is_version in (True, False):
        seen.add(is_version, "u", turn(None))
    assert [test.n for test in seen.pairs.values()] == [0, 0, 0]
    assert (seen.version.n, seen.version.n_judged, seen.amounts["length"].n) == (1, 0, 1)


def test_one_loud_user_among_many_is_capped_and_alone_is_not() -> None:
    alone = Comparison(Rules())
    for _ in range(100):
        alone.add(True, "only", turn(True))
    assert (alone.version.n, alone.version.n_capped) == (100, 0)
    seen = Comparison(Rules())
    for i in range(200):
        seen.add(True, f"quiet-{i % 20}" if i % 2 else "loud", turn(True))
    assert seen.version.users["loud"] <= 0.25 * seen.version.n + 10
    assert seen.version.n_capped > 40


def test_a_watch_goes_on_until_its_turns_are_through() -> None:
    seen = Comparison(Rules(watch_turns=100), rate=0.8)
    chance = random.Random(3)
    for _ in range(99):
        seen.add(True, "u", turn(chance.random() < 0.85))
        assert decide_watch(seen).state is CanaryState.RUNNING
    seen.add(True, "u", turn(True))
    assert decide_watch(seen).state is CanaryState.PASSED
    bad = Comparison(Rules(), rate=0.8)
    for _ in range(14):
        bad.add(True, "u", turn(False))
    assert decide_watch(bad).state is CanaryState.STOPPED


def test_odds_can_be_read() -> None:
    assert [odds(x) for x in (0.0, 5.3, 50.0)] == ["1", "200", "10^22"]


def sliced(loss: float, **rules: float) -> tuple[Decision, Comparison]:
    """A version that is worse by `loss` in one of four slices and better by as much in another, in both arms alike."""
    chance = random.Random(2)
    seen = Comparison(Rules(**rules))  # type: ignore[arg-type]
    for number in range(8000):
        is_version, name = number % 2 == 0, f"route: {chance.randrange(4)}"
        lost = {"route: 0": loss, "route: 1": -loss}.get(name, 0.0) if is_version else 0.0
        good = chance.random() < 0.6 - lost
        seen.add(is_version, f"user-{chance.randrange(40)}", turn(good, name=str(number), slices=("all: 1", name)))
        if number % 500 == 0:
            seen = Comparison.of(seen.rules, json.loads(json.dumps(seen.as_dict())))
        if (decision := decide_watch(seen)).state is CanaryState.STOPPED:
            return decision, seen
    return decision, seen


def test_a_version_is_stopped_for_a_slice_in_which_it_is_worse() -> None:
    decision, seen = sliced(0.35)
    assert decision.state is CanaryState.STOPPED
    assert decision.reason.startswith("judged worse in the slice 'route: 0': ")
    assert decision.reason.endswith("to 1 (acts at 4,800)")
    worst = seen.slices.table(0.1, 0.005)[0]
    assert (worst["slice"], worst["state"], len(worst["lost"])) == ("route: 0", "fallen", 10)
    assert "all: 1" not in {each["slice"] for each in seen.slices.table(0.1, 0.005)}  # it says nothing of its own


def test_slices_alike_or_within_the_margin_stop_nothing() -> None:
    assert sliced(0.0)[0].state is not CanaryState.STOPPED
    assert sliced(0.35, slice_margin=1.0)[0].state is not CanaryState.STOPPED


def test_a_system_prompt_for_every_session_leaves_room_for_other_slices() -> None:
    seen = Comparison(Rules())
    for number in range(100):
        seen.add(True, "u", turn(True, slices=(f"system prompt: {number}",)))
    seen.add(True, "u", turn(True, slices=("tool: ls",)))
    assert len(seen.slices.all) == 9 and "tool: ls" in seen.slices.all


def test_a_mirrored_pair_counts_in_its_slices() -> None:
    seen = Comparison(Rules())
    for outcome in (-1, -1, 0, 1):
        seen.add_mirrored("u", outcome, turn(), turn(name="t", slices=("route: chat",)))
    one = seen.slices.all["route: chat"]
    assert (one.judged, one.good, one.test.n_losses, one.test.n_wins, one.bad) == ([4, 4], [2, 1], 2, 1, ["t", "t"])


def test_the_course_keeps_few_points_and_continues_after_a_restart() -> None:
    seen = Comparison(Rules(user_cap=1.0))
    for number in range(1000):
        seen.add(number % 2 == 0, "u", turn(number % 3 > 0))
        if number % 100 == 0:
            seen = Comparison.of(seen.rules, json.loads(json.dumps(seen.as_dict())))
    points = [int(n) for n, *_ in seen.course]
    assert len(points) <= MOST_POINTS and points == sorted(set(points)) and points[-1] >= 480
    n, good, base_n, base_good, _ = seen.course[-1]
    assert good / n == pytest.approx(2 / 3, abs=0.01) and base_good / base_n == pytest.approx(2 / 3, abs=0.01)
