"""Sequential tests: values by hand, properties of any sequence, and Ville's inequality on simulated ones."""

import json
import random
from collections.abc import Sequence
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.adapters.evidence.sequential import BoundedMean, KnownBaseline, Paired, gain, larger, no_worse, share

ALPHA = 0.005
OUTCOMES = st.lists(st.booleans(), max_size=300)
PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=300)
PARTS = st.lists(st.floats(0, 1), max_size=300)


def paired(pairs: Sequence[tuple[bool, bool]]) -> Paired:
    test = Paired()
    for pair in pairs:
        test.update(*pair)
    return test


def test_known_baseline_by_hand() -> None:
    """0.80 against 0.70: a success is worth 7/8, a failure 3/2."""
    test = KnownBaseline(0.8, 0.1)
    test.update(False)
    assert exp(test.log_e) == pytest.approx(1.5)
    test.update(True)
    assert exp(test.log_e) == pytest.approx(1.3125)
    assert exp(test.peak) == pytest.approx(1.5)
    for _ in range(13):
        test.update(False)
    assert exp(test.log_e) == pytest.approx(1.3125 * 1.5**13)
    assert test.peak > log(1 / ALPHA)  # 255 > 200


def test_wald_accepts_a_healthy_version() -> None:
    """β/(1 − α) = 0.05025; 0.875²² = 0.0530, 0.875²³ = 0.0464."""
    test = KnownBaseline(0.8, 0.1, n_good=22)
    assert not test.is_healthy(ALPHA, 0.05)
    test.update(True)
    assert test.is_healthy(ALPHA, 0.05)


def test_a_baseline_without_failures_is_not_broken_by_one() -> None:
    test = KnownBaseline(1.0, 0.1)
    test.update(False)
    assert exp(test.log_e) == pytest.approx(11.0)  # 0.11 / 0.01
    low = KnownBaseline(0.1, 0.3)
    low.update(False)
    assert exp(low.log_e) == pytest.approx(0.95 / 0.9)


def test_paired_by_hand() -> None:
    """One loss: 0.7·1.2 + 0.2·1.5 + 0.1·1.8 = 1.32; one win: 0.7·0.8 + 0.2·0.5 + 0.1·0.2 = 0.68."""
    assert exp(paired([(True, False)]).log_e) == pytest.approx(1.32)
    assert exp(paired([(False, True)]).log_e) == pytest.approx(0.68)
    assert exp(paired([(True, False)] * 2 + [(False, True)]).log_e) == pytest.approx(
        0.7 * 1.44 * 0.8 + 0.2 * 2.25 * 0.5 + 0.1 * 3.24 * 0.2
    )
    assert paired([(True, False)] * 13).peak > log(1 / ALPHA)
    assert paired([(True, False)] * 12).peak < log(1 / ALPHA)


def test_bounded_mean_by_hand() -> None:
    """Limit 1/2 and an observation of 1 double the stake: the mean of 1.05, 1.1, 1.2, 1.4, 1.8 is 1.31."""
    test = BoundedMean(0.5)
    test.update(1.0)
    assert exp(test.log_e) == pytest.approx(1.31)
    test.update(0.0)
    assert exp(test.log_e) == pytest.approx((1.05 * 0.95 + 1.1 * 0.9 + 1.2 * 0.8 + 1.4 * 0.6 + 1.8 * 0.2) / 5)
    with pytest.raises(ValueError, match=r"expected an observation in \[0, 1\], got 1.5"):
        test.update(1.5)


def test_pairs_as_observations() -> None:
    assert [gain(*pair) for pair in ((True, False), (True, True), (False, True))] == [0.0, 0.5, 1.0]
    assert no_worse(0.1).limit == pytest.approx(0.45)
    assert larger(1.5).limit == pytest.approx(0.6)
    assert (share(100, 150), share(0, 0), share(0, 3)) == (0.6, 0.5, 1.0)


@given(OUTCOMES)
def test_known_baseline_starts_at_one_and_only_counts_matter(outcomes: list[bool]) -> None:
    test, backwards = KnownBaseline(0.8, 0.1), KnownBaseline(0.8, 0.1)
    assert test.log_e == test.peak == 0.0
    for one, other in zip(outcomes, reversed(outcomes), strict=True):
        before = test.log_e
        test.update(one)
        backwards.update(other)
        assert test.log_e < before if one else test.log_e > before
        assert test.peak >= test.log_e
    assert test.log_e == backwards.log_e


@given(PAIRS, st.randoms())
def test_ties_say_nothing_wherever_they_stand(pairs: list[tuple[bool, bool]], chance: random.Random) -> None:
    test = paired(pairs)
    assert paired([]).log_e == pytest.approx(0.0)
    assert exp(test.log_e) >= 0.0
    assert test.n == len(pairs)
    discordant = [pair for pair in pairs if pair[0] != pair[1]]
    ties = [pair for pair in pairs if pair[0] == pair[1]]
    mixed = list(discordant)
    for tie in ties:
        mixed.insert(chance.randint(0, len(mixed)), tie)
    assert (paired(mixed).log_e, paired(mixed).peak) == (test.log_e, test.peak)
    assert paired(discordant).log_e == test.log_e


@given(PAIRS)
def test_each_loss_is_evidence_and_each_win_takes_from_it(pairs: list[tuple[bool, bool]]) -> None:
    test = paired(pairs)
    assert paired([*pairs, (True, False)]).log_e > test.log_e > paired([*pairs, (False, True)]).log_e


@given(PARTS, st.floats(0.1, 0.9))
def test_bounded_mean_is_monotone_and_finite(values: list[float], limit: float) -> None:
    test = BoundedMean(limit)
    assert test.log_e == pytest.approx(0.0)
    for value in values:
        test.update(value)
    lower, higher = (BoundedMean(**test.as_dict()) for _ in range(2))
    lower.update(0.0)
    higher.update(1.0)
    assert lower.log_e < test.log_e < higher.log_e


@given(OUTCOMES, PAIRS, PARTS)
def test_a_state_that_went_through_json_goes_on_as_if_nothing_had_happened(
    outcomes: list[bool], pairs: list[tuple[bool, bool]], values: list[float]
) -> None:
    known, bets = KnownBaseline(0.83, 0.07), BoundedMean(0.6)
    for outcome in outcomes:
        known.update(outcome)
    for value in values:
        bets.update(value)
    for test in (known, paired(pairs), bets):
        again = type(test)(**json.loads(json.dumps(test.as_dict())))
        assert again == test
        assert again.log_e == test.log_e


def alarms(n: int, looks: int, make: object) -> float:
    """The share of `n` sequences whose evidence ever reaches 1/α."""
    n_alarms = 0
    for seed in range(n):
        peak = make(random.Random(seed), looks)  # type: ignore[operator]
        n_alarms += peak >= log(1 / ALPHA)
    return n_alarms / n


def lengths(chance: random.Random, looks: int) -> float:
    """Lengths from one heavy-tailed distribution, with no tolerance."""
    test = larger(1.0)
    for _ in range(looks):
        test.update(share(chance.lognormvariate(4, 1), chance.lognormvariate(4, 1)))
    return test.peak


def no_worse_by_exactly_delta(chance: random.Random, looks: int) -> float:
    test = no_worse(0.1)
    for _ in range(looks):
        test.update(gain(chance.random() < 0.8, chance.random() < 0.7))
    return test.peak


@pytest.mark.parametrize("make", [lengths, no_worse_by_exactly_delta])
def test_false_alarms_stay_below_alpha(make: object) -> None:
    """400 sequences: with α = 0.005 more than 7 alarms have a probability below 0.002."""
    assert alarms(400, 400, make) <= 7 / 400


def test_doubled_lengths_are_found() -> None:
    chance = random.Random(1)
    test = larger(1.2)
    for _ in range(400):
        test.update(share(chance.lognormvariate(4, 0.7), chance.lognormvariate(4.7, 0.7)))
    assert test.peak > log(1 / ALPHA)


def test_an_equal_version_is_found_no_worse() -> None:
    n_found = 0
    for seed in range(50):
        chance, test = random.Random(seed), no_worse(0.1)
        for _ in range(500):
            test.update(gain(chance.random() < 0.8, chance.random() < 0.8))
        n_found += test.peak >= log(1 / 0.05)
    assert n_found >= 45
