"""Drift: equal to the KL by hand where everything is named, an estimate from below elsewhere, and never a crash."""

import math
import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.adapters.evidence.drift import MAX_DRIFT, N_TOLD, drift

N_VOCAB = 2000


def told(probabilities: Sequence[float], sampled: int | None = None) -> Mapping[int, float]:
    """The prediction as an engine names it: the likeliest tokens, and the one that was sampled."""
    ids = sorted(range(len(probabilities)), key=lambda i: -probabilities[i])[:N_TOLD]
    ids += [] if sampled is None or sampled in ids else [sampled]
    return {i: max(-9999.0, math.log(probabilities[i])) if probabilities[i] else -9999.0 for i in ids}


def kl(p: Sequence[float], q: Sequence[float]) -> float:
    return math.fsum(x * math.log(x / y) for x, y in zip(p, q, strict=True) if x > 0)


def softmax(logits: Sequence[float]) -> list[float]:
    highest = max(logits)
    values = [math.exp(value - highest) for value in logits]
    total = math.fsum(values)
    return [value / total for value in values]


def language(seed: int, spread: float = 3.0) -> list[float]:
    """Logits like a language model's: a few likely tokens, a long tail."""
    rng = random.Random(seed)
    return [rng.gauss(0.0, spread) for _ in range(N_VOCAB)]


def one_token(token: int, share: float = 0.99) -> list[float]:
    return [share if i == token else (1.0 - share) / (N_VOCAB - 1) for i in range(N_VOCAB)]


UNIFORM = [1.0 / N_VOCAB] * N_VOCAB


def test_by_hand() -> None:
    base, version = {1: math.log(0.5), 2: math.log(0.3)}, {1: math.log(0.25), 2: math.log(0.3)}
    expected = 0.5 * math.log(0.5 / 0.25) + 0.2 * math.log(0.2 / 0.45)
    assert drift(base, version) == pytest.approx(expected)
    assert drift(base, base) == 0.0


def test_a_token_that_one_side_does_not_name_gets_what_is_left() -> None:
    """Of the version's 0.4 that are left, token 1 and the rest get 0.2 each."""
    found = drift({1: math.log(0.9)}, {2: math.log(0.6)})
    expected = 0.9 * math.log(0.9 / 0.2) + 0.05 * math.log(0.05 / 0.6) + 0.05 * math.log(0.05 / 0.2)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("bad", [{}, {1: math.nan}, {1: -math.inf}, {1: math.inf}])
def test_what_is_no_prediction_is_infinitely_far(bad: Mapping[int, float]) -> None:
    assert drift({1: -0.1}, bad) == drift(bad, {1: -0.1}) == math.inf


@given(st.lists(st.floats(-30, 0), min_size=1, max_size=40), st.lists(st.floats(-30, 0), min_size=1, max_size=40))
def test_whatever_is_named_the_drift_is_a_number_and_not_negative(p: list[float], q: list[float]) -> None:
    found = drift(told(softmax(p)), told(softmax(q)))
    assert math.isfinite(found) and found >= -1e-9


@pytest.mark.parametrize("seed", range(20))
def test_it_is_close_to_the_true_kl_of_small_changes_and_below_that_of_large_ones(seed: int) -> None:
    rng, logits = random.Random(seed), language(seed)
    base = softmax(logits)
    for size in (0.1, 0.3, 1.0, 3.0):
        version = softmax([value + rng.gauss(0.0, size) for value in logits])
        found, true = drift(told(base), told(version, sampled=rng.randrange(N_VOCAB))), kl(base, version)
        assert found <= true + 0.02
        assert true > 0.2 or abs(found - true) < 0.1


@pytest.mark.parametrize("seed", range(20))
def test_collapses_are_far_and_steps_are_near(seed: int) -> None:
    rng, logits = random.Random(seed), language(seed)
    base = softmax(logits)
    collapses = {
        "uniform": UNIFORM,
        "one token": one_token(rng.randrange(N_VOCAB)),
        "the last of the likely ones": one_token(sorted(range(N_VOCAB), key=lambda i: -base[i])[N_TOLD - 1]),
    }
    for name, version in collapses.items():
        assert drift(told(base), told(version)) > MAX_DRIFT, name
    step = softmax([value + rng.gauss(0.0, 0.3) for value in logits])  # about 0.05 nats
    assert drift(told(base), told(step)) < MAX_DRIFT / 4


def test_most_predictions_of_another_prompt_are_far() -> None:
    """Not all: with most of the mass on tokens that neither names, too little is compared."""
    found = [drift(told(softmax(language(seed))), told(softmax(language(seed + 1000)))) for seed in range(20)]
    assert sum(value > MAX_DRIFT for value in found) >= 15
    assert min(found) > MAX_DRIFT / 4


def test_a_base_without_preferences_has_none_to_lose() -> None:
    assert drift(told(UNIFORM), told(UNIFORM)) == pytest.approx(0.0, abs=1e-9)
    assert drift(told(UNIFORM), told(one_token(7))) > 2 * MAX_DRIFT
