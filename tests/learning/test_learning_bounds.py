"""Bootstrap bounds and pairing by seed."""

import math

import pytest

from benchmarks.learning.bounds import estimate, gain, paired, ratio


def test_equal_values_have_no_width() -> None:
    estimated = estimate([0.5] * 8)

    assert (estimated.mean, estimated.low, estimated.high, estimated.n) == (0.5, 0.5, 0.5, 8)


def test_one_seed_is_its_own_bounds() -> None:
    assert estimate([0.25]) == estimate([0.25])
    assert (estimate([0.25]).low, estimate([0.25]).high) == (0.25, 0.25)


def test_two_values_by_hand() -> None:
    """A mean of two draws from {0, 1} is 0 or 1 with a quarter each: both lie beyond 2.5 %."""
    estimated = estimate([0.0, 1.0])

    assert (estimated.mean, estimated.low, estimated.high) == (0.5, 0.0, 1.0)


def test_width_is_near_the_normal_one() -> None:
    values = [i / 99 for i in range(100)]
    estimated = estimate(values)
    spread = math.sqrt(sum((v - 0.5) ** 2 for v in values) / 100) / 10

    assert estimated.low == pytest.approx(0.5 - 1.96 * spread, abs=0.004)
    assert estimated.high == pytest.approx(0.5 + 1.96 * spread, abs=0.004)


def test_the_same_values_give_the_same_bounds() -> None:
    assert estimate([0.1, 0.4, 0.7]) == estimate([0.1, 0.4, 0.7])


def test_gain_is_paired_by_seed() -> None:
    """Seeds differ by much, the arms by 0.1 everywhere: paired, nothing is uncertain. A seed that one side lacks is
    left out."""
    estimated = gain({0: 0.2, 1: 0.6, 2: 1.0}, {0: 0.1, 1: 0.5, 2: 0.9, 3: 0.0})

    assert estimated is not None
    assert estimated.n == 3
    assert (estimated.mean, estimated.low, estimated.high) == pytest.approx((0.1, 0.1, 0.1))


def test_pairs_come_in_the_order_of_the_seeds() -> None:
    assert paired({2: 0.2, 1: 0.1}, {1: 1.0, 2: 2.0}) == ([0.1, 0.2], [1.0, 2.0])


def test_no_common_seed_is_no_gain() -> None:
    assert gain({0: 1.0}, {1: 1.0}) is None


def test_ratio_of_means() -> None:
    estimated = ratio([0.9, 0.9], [0.1, 0.2])

    assert estimated.mean == pytest.approx(6.0)
    assert (estimated.low, estimated.high) == pytest.approx((4.5, 9.0))


def test_ratio_over_nothing_is_infinite() -> None:
    assert ratio([0.9], [0.0]).low == math.inf


@pytest.mark.parametrize(("over", "under"), [([], []), ([1.0], []), ([1.0], [1.0, 2.0])])
def test_unequal_lists_are_refused(over: list[float], under: list[float]) -> None:
    with pytest.raises(ValueError, match="one value a seed"):
        ratio(over, under)


def test_farthest_keeps_its_sign() -> None:
    assert estimate([-0.2, -0.2]).farthest == -0.2
