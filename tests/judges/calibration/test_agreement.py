"""Figures of agreement and calibration, against numbers worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.judges.calibration.agreement import calibration_error, kappa, kappa_interval, wilson


def test_kappa_is_the_agreement_beyond_chance() -> None:
    # Cohen's own kind of table: 20 both yes, 15 both no, 5 and 10 apart. Observed 0.7, by chance 0.5.
    pairs = [(1, 1)] * 20 + [(-1, -1)] * 15 + [(1, -1)] * 5 + [(-1, 1)] * 10
    assert kappa(pairs) == pytest.approx(0.4)
    assert kappa([(1, 1), (0, 0), (-1, -1)]) == 1.0
    assert kappa([(1, -1), (-1, 1)]) == -1.0
    assert kappa([(1, 1), (1, 0), (0, 1), (0, 0)]) == 0.0


@pytest.mark.parametrize("pairs", [[], [(1, 1)] * 5])
def test_kappa_of_nothing_or_of_one_verdict_throughout_is_not_defined(pairs: list[tuple[int, int]]) -> None:
    assert kappa(pairs) is None


def test_the_interval_of_kappa_is_that_of_the_delta_method() -> None:
    """Its variance from κ's own slopes, taken by finite differences of the nine shares."""
    scores = (1, 0, -1)
    table = {(1, 1): 30, (1, 0): 4, (1, -1): 6, (0, 1): 5, (0, 0): 15, (0, -1): 3, (-1, 1): 7, (-1, 0): 2, (-1, -1): 28}
    shares = {cell: n / 100 for cell, n in table.items()}

    def of(shares: dict[tuple[int, int], float]) -> float:
        whole = sum(shares.values())
        one, other = ({s: sum(v for c, v in shares.items() if c[k] == s) / whole for s in scores} for k in (0, 1))
        by_chance = sum(one[s] * other[s] for s in scores)
        return (sum(shares[s, s] for s in scores) / whole - by_chance) / (1 - by_chance)

    slopes = {cell: (of(shares | {cell: shares[cell] + 1e-6}) - of(shares)) / 1e-6 for cell in shares}
    spread = sum(shares[c] * slopes[c] ** 2 for c in shares) - sum(shares[c] * slopes[c] for c in shares) ** 2
    half = 1.959964 * (spread / 100) ** 0.5
    pairs = [cell for cell, n in table.items() for _ in range(n)]
    assert kappa_interval(pairs) == pytest.approx((of(shares) - half, of(shares) + half), abs=1e-4)


def test_the_interval_of_kappa_at_its_ends() -> None:
    assert kappa_interval([]) is None
    assert kappa_interval([(1, 1), (0, 0), (-1, -1)]) == (1.0, 1.0)
    assert kappa_interval([(1, 1), (0, 1), (-1, 1)]) == (0.0, 0.0), "one answer to everything agrees by chance alone"


def test_the_calibration_error_is_the_mean_gap_by_bin() -> None:
    # Two bins: ten at 0.6 of which eight are right (gap 0.2), ten at 1.0 of which nine are (gap 0.1).
    told = [(0.6, n < 8) for n in range(10)] + [(1.0, n < 9) for n in range(10)]
    assert calibration_error(told) == pytest.approx(0.15)
    assert calibration_error([(1.0, True)] * 4) == 0.0
    assert calibration_error([]) is None


def test_a_confidence_on_the_edge_of_two_bins_belongs_to_the_lower_one() -> None:
    assert calibration_error([(0.7, True), (0.65, False)]) == pytest.approx(abs(0.7 + 0.65 - 1) / 2)  # one bin
    assert calibration_error([(0.7, True), (0.75, False)]) == pytest.approx((0.3 + 0.75) / 2)  # two
    assert calibration_error([(0.0, False), (0.1, True)]) == pytest.approx(0.9 / 2)


def test_wilson_s_interval_has_the_values_of_the_textbook() -> None:
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)  # Newcombe 1998, table I
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert wilson(0, 0) is None


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_share(counts: tuple[int, int]) -> None:
    interval = wilson(*counts)
    assert interval is not None
    assert 0.0 <= interval[0] <= counts[0] / counts[1] + 1e-9
    assert counts[0] / counts[1] - 1e-9 <= interval[1] <= 1.0
