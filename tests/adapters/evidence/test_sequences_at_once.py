"""The benchmark's vectorised sequences equal the tests of `adapters/evidence/sequential.py`, look by look."""

import numpy as np
import pytest

from benchmarks.adapters.sequences import caught_at, known, paired, peeked
from burnish.adapters.evidence.sequential import KnownBaseline, Paired


@pytest.mark.parametrize(("rate", "other"), [(0.8, 0.8), (0.8, 0.6), (0.5, 0.1), (1.0, 0.0)])
def test_at_once_and_one_by_one_are_the_same(rate: float, other: float) -> None:
    chance = np.random.default_rng(7)
    baseline, version = chance.random((20, 150)) < rate, chance.random((20, 150)) < other
    at_once_known, at_once_paired = known(version), paired(baseline, version)
    for row in range(20):
        alone, pairs = KnownBaseline(0.8, 0.1), Paired()
        for look in range(150):
            alone.update(bool(version[row, look]))
            pairs.update(bool(baseline[row, look]), bool(version[row, look]))
            assert at_once_known[row, look] == pytest.approx(alone.log_e, abs=1e-9)
            assert at_once_paired[row, look] == pytest.approx(pairs.log_e, abs=1e-9)
            for at_once, test in ((at_once_known, alone), (at_once_paired, pairs)):
                crossed = caught_at(at_once[row : row + 1, : look + 1])[0] <= look + 1
                assert crossed == (test.peak >= -np.log(0.005))


def test_the_first_look_at_the_bound_counts() -> None:
    log_e = np.array([[0.0, 6.0, 0.0], [6.0, 6.0, 6.0], [0.0, 1.0, 2.0]])
    assert caught_at(log_e).tolist() == [2, 1, 4]


def test_peeking() -> None:
    """After 9 losses in a row z = −3. Two wins in three keep it above."""
    losing, even = np.array([[True] * 9]), np.array([[True, False, False] * 3])
    assert peeked(losing, ~losing, -2.9, 1).tolist() == [True]
    assert peeked(even, ~even, -2.33, 1).tolist() == [False]
