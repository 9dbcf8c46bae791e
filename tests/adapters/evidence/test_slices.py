"""Slices of a held-out replay: which are tested, what counts as fallen, which are asked further."""

import random

import pytest

from burnish.adapters.evidence.gate import Evidence
from burnish.adapters.evidence.heldout_replay import Measures, Replay, Rules, faults
from burnish.adapters.evidence.slices import FEWEST, MOST, Slices, State, chosen, known, net_loss_bound

LIKE = Measures(length=20.0, repetition=0.0, n_calls=0, n_broken=0)


def seen(*, lost: int, won: int, tied: int, margin: float = 0.1, others: int = 11) -> Slices:
    """Slice `bad` with these pairs beside others that are even."""
    made = Slices(("bad", *map(str, range(others))), margin)
    for number, outcome in enumerate([*[-1, 1] * min(lost, won), *[-1] * (lost - won), *[0] * tied]):
        made.add(f"t{number}", ("bad", "unknown"), outcome)
    for other in range(others):
        for number in range(100):
            made.add(f"o{number}", (str(other),), (-1, 1, 0, 0)[number % 4])
    return made


def test_a_slice_falls_on_evidence_that_is_corrected_for_the_number_of_slices() -> None:
    # 12 of 12 pairs lost: E ≈ 0.7·1.2¹² + 0.2·1.5¹² + 0.1·1.8¹² = 148, and 12 slices act at 12/0.05 = 240
    assert seen(lost=12, won=0, tied=20).of(State.FALLEN) == []
    assert [one.name for one in seen(lost=12, won=0, tied=20, others=5).of(State.FALLEN)] == ["bad"]
    fallen = seen(lost=14, won=0, tied=20)
    assert [one.name for one in fallen.of(State.FALLEN)] == ["bad"]
    assert fallen.worst is fallen.all["bad"] and fallen.all["bad"].lost == [f"t{number}" for number in range(4, 14)]


def test_evidence_alone_is_no_fall_if_the_loss_is_within_the_margin() -> None:
    assert seen(lost=14, won=0, tied=986).of(State.FALLEN) == []
    assert seen(lost=200, won=0, tied=0, margin=1.0).of(State.FALLEN) == []


def test_a_slice_is_open_until_the_bound_is_within_the_margin() -> None:
    assert net_loss_bound(40, 40, 200) == pytest.approx(1.6448536 * 9.0 / 202.0, abs=1e-6)
    assert seen(lost=5, won=5, tied=10).all["bad"].name in {
        one.name for one in seen(lost=5, won=5, tied=10).of(State.OPEN)
    }
    assert "bad" in {one.name for one in seen(lost=50, won=50, tied=300).of(State.HELD)}


def test_the_largest_slices_that_do_not_hold_every_turn_are_tested() -> None:
    turns = [("all", "few" if number < FEWEST - 1 else "half" if number % 2 else "rest") for number in range(100)]
    assert known(turns) == ("half", "rest")
    assert len(known([(f"s{number % 30}",) for number in range(900)])) == MOST


def test_a_round_takes_about_as_many_turns_of_each_wanted_slice() -> None:
    turns = [(f"t{number}", ("a",) if number % 10 else ("b", "c")) for number in range(1000)]
    names = list(chosen(turns, {"a", "b"}, 20))
    assert len(names) == 20 and sum(int(name[1:]) % 10 == 0 for name in names) == 10
    assert list(chosen(turns, set(), 20)) == []


def test_a_fallen_slice_is_a_fault_and_an_open_one_is_none() -> None:
    replay = Replay(200, 40, 40, 0, LIKE, LIKE, Rules(), slices=seen(lost=30, won=2, tied=20))
    (said,) = faults(replay)
    assert said.startswith("fell in the slice 'bad': lost 30 and won 2 of 52 held-out pairs, 53.8% net lost, 10%")
    told = Evidence(replay=replay).as_dict()
    assert told["slices"]["worst"] == "bad" and told["slices"]["by_slice"][0]["n_lost"] == 30  # type: ignore[index]
    assert "slices" not in told["replay"]  # type: ignore[operator]
    assert faults(Replay(200, 40, 40, 0, LIKE, LIKE, Rules(), slices=seen(lost=8, won=2, tied=10))) == []


def test_versions_that_are_no_worse_are_seldom_refused() -> None:
    chance, n_refused = random.Random(1), 0
    for _ in range(200):
        slices = Slices([str(number) for number in range(12)], 0.01)
        for number in range(12 * 60):
            slices.add(str(number), (str(number % 12),), chance.choice((-1, 0, 1)))
        n_refused += bool(slices.of(State.FALLEN))
    assert n_refused <= 10  # 5 %
