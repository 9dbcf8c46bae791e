"""The gate: every fault is found, missing evidence never passes, and the bound is the textbook's."""

import math
import random
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.adapters.evidence.gate import (
    N_FORGETTING_PROMPTS,
    Evidence,
    GateVerdict,
    Measure,
    Probe,
    Retention,
    binomial_upper,
    decide,
    tolerated,
)
from burnish.config import Gate

TOLERANCE = 1e-3
CANDIDATE, PARENT, BASE = (-1.0, -2.0, -3.0), (-1.5, -2.5, -3.0), (-2.0, -2.0, -3.5)
SOUND = Probe(engine=(-1.0004, -2.0, -2.9996), candidate=CANDIDATE, parent=PARENT, base=BASE, tolerance=TOLERANCE)
KEPT = Retention(n=64, n_lost=0, margin=0.1)
PREDICTED = Retention(n=96, n_lost=4, margin=0.1, measure=Measure.PREDICTIONS)
GOOD = Evidence(is_mechanical_checked=True, probe=SOUND, retention=KEPT)
NAN, INF = math.nan, math.inf


def test_a_candidate_that_showed_everything_passes() -> None:
    assert decide(GOOD) == GateVerdict(())
    assert decide(GOOD).has_passed
    assert decide(replace(GOOD, retention=PREDICTED)).has_passed


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        (Evidence(), "were not checked"),
        (replace(GOOD, is_mechanical_checked=False), "were not checked"),
        (replace(GOOD, mechanical_fault="a flipped byte"), "a flipped byte"),
        (replace(GOOD, probe=None), "no probe"),
        (replace(GOOD, probe=Probe((), (), (), (), TOLERANCE)), "no probe"),
        (replace(GOOD, probe=replace(SOUND, engine=CANDIDATE[:2])), "do not line up"),
        (replace(GOOD, probe=replace(SOUND, parent=())), "do not line up"),
        (replace(GOOD, probe=replace(SOUND, engine=(-1.0011, -2.0, -3.0))), "differ by 1.10e-03"),
        (replace(GOOD, probe=replace(SOUND, engine=BASE)), "nearer to the base"),
        (replace(GOOD, probe=replace(SOUND, engine=PARENT)), "nearer to the parent"),
        (replace(GOOD, retention=None), "insufficient evidence: 0 forgetting prompts that the base passes, 64 needed"),
        (replace(GOOD, retention=replace(KEPT, n=63)), "insufficient evidence: 63 forgetting prompts"),
        (replace(GOOD, retention=replace(KEPT, n_lost=3)), "unlearned 3 of 64"),
        (replace(GOOD, retention=replace(KEPT, n_lost=64)), "unlearned 64 of 64"),
        (
            replace(GOOD, retention=replace(PREDICTED, n=63)),
            "insufficient evidence: 63 forgetting prompts that the engine accepts, 64 needed",
        ),
        (replace(GOOD, retention=replace(PREDICTED, n_lost=5)), "predicts otherwise than the base on 5 of 96"),
    ],
)
def test_every_fault_is_named(evidence: Evidence, said: str) -> None:
    verdict = decide(evidence)
    assert not verdict.has_passed
    assert any(said in fault for fault in verdict.faults), verdict.faults


def test_all_faults_are_told_at_once() -> None:
    verdict = decide(Evidence(mechanical_fault="broken"))
    assert [fault.split(":")[0] for fault in verdict.faults] == [
        "broken",
        "no probe",
    ]  # after a failure here nothing more is asked


def test_two_lost_prompts_of_sixty_four_are_tolerated_at_a_tenth() -> None:
    assert decide(replace(GOOD, retention=replace(KEPT, n_lost=2))).has_passed
    assert not decide(replace(GOOD, retention=replace(KEPT, n_lost=2, margin=0.09))).has_passed


def test_a_probe_that_says_nothing_about_the_adapter_demands_no_difference() -> None:
    """If the learner itself measures less than 3 tolerances between candidate and parent, the engine cannot find
    more."""
    parent = tuple(value + 1e-4 for value in CANDIDATE)
    assert decide(replace(GOOD, probe=Probe(parent, CANDIDATE, parent, CANDIDATE, TOLERANCE))).has_passed


def test_what_an_adapter_changed_much_may_differ_by_more() -> None:
    """Seen in bfloat16: 0.47 nats at a version whose probe had changed by 5.8."""
    probe = Probe(engine=(-1.47,), candidate=(-1.0,), parent=(-3.9,), base=(-6.8,), tolerance=0.4)
    assert decide(replace(GOOD, probe=probe)).has_passed
    assert not decide(replace(GOOD, probe=replace(probe, base=(-1.5,)))).has_passed
    assert not decide(replace(GOOD, probe=replace(probe, engine=probe.parent))).has_passed


@pytest.mark.parametrize("axis", ["engine", "candidate", "base"])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_log_probs_that_are_no_numbers_never_pass(axis: str, value: float) -> None:
    probe = replace(SOUND, **{axis: (value, -2.0, -3.0)})
    assert not decide(replace(GOOD, probe=probe)).has_passed


def test_equal_infinities_are_no_agreement() -> None:
    same = (-INF, NAN, -3.0)
    assert not decide(replace(GOOD, probe=replace(SOUND, engine=same, candidate=same))).has_passed


@pytest.mark.parametrize("tolerance", [NAN, 0.0, -1.0])
def test_a_tolerance_that_is_none_passes_nothing(tolerance: float) -> None:
    assert not decide(replace(GOOD, probe=replace(SOUND, tolerance=tolerance))).has_passed


@given(st.lists(st.tuples(*[st.floats(-30, 0)] * 4), min_size=1, max_size=8))
def test_whatever_the_numbers_a_pass_means_agreement_and_a_difference(
    rows: list[tuple[float, float, float, float]],
) -> None:
    engine, candidate, parent, base = (tuple(axis) for axis in zip(*rows, strict=True))
    probe = Probe(engine, candidate, parent, base, 0.5)
    if decide(replace(GOOD, probe=probe)).has_passed:
        limit = 0.5 * max(1.0, *(abs(x - y) / 2.0 for x, y in zip(candidate, base, strict=True)))
        assert all(abs(x - y) <= limit for x, y in zip(engine, candidate, strict=True))
        for other in (parent, base):
            apart = max(abs(x - y) for x, y in zip(candidate, other, strict=True))
            assert apart <= 3 * limit or probe.gap < max(abs(x - y) for x, y in zip(engine, other, strict=True))


@pytest.mark.parametrize(
    ("k", "n", "expected"),
    [
        (0, 64, 0.04572970),  # 1 − 0.05^(1/64)
        (1, 64, 0.07198975),
        (2, 64, 0.09512172),
        (3, 64, 0.11671659),
        (0, 1, 0.95),
        (1, 2, 0.97467943),  # √0.95
        (5, 10, 0.77755890),  # tables of Clopper and Pearson: 0.778
        (64, 64, 1.0),
    ],
)
def test_the_bound_is_clopper_and_pearsons(k: int, n: int, expected: float) -> None:
    assert binomial_upper(k, n) == pytest.approx(expected, abs=1e-8)


def share_passed(true_loss: float, n_versions: int = 2000) -> float:
    """The share of simulated versions that pass. Each loses every prompt with probability `true_loss`."""
    rng = random.Random(f"gate {true_loss}")
    most = tolerated(N_FORGETTING_PROMPTS, Gate().forgetting_margin)
    lost = [sum(rng.random() < true_loss for _ in range(N_FORGETTING_PROMPTS)) for _ in range(n_versions)]
    return sum(n <= most for n in lost) / len(lost)


@pytest.mark.parametrize(
    ("true_loss", "least", "most"),
    [(0.0, 1.0, 1.0), (0.01, 0.985, 1.0), (0.02, 0.93, 1.0), (0.10, 0.0, 0.05), (0.15, 0.0, 0.01), (0.20, 0.0, 0.003)],
)
def test_both_error_rates_of_the_default_number_of_prompts(true_loss: float, least: float, most: float) -> None:
    """What is sound passes, and what lost a tenth or more does not."""
    assert least <= share_passed(true_loss) <= most


@given(st.integers(1, 80), st.data())
def test_at_the_bound_so_few_losses_have_probability_one_in_twenty(n: int, data: st.DataObject) -> None:
    """The definition, in exact arithmetic."""
    k = data.draw(st.integers(0, n - 1))
    p = Fraction(binomial_upper(k, n))
    tail = sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))
    assert float(tail) == pytest.approx(0.05, abs=1e-9)
    assert binomial_upper(k, n) < binomial_upper(k + 1, n)


def test_what_is_stored_has_the_figures_and_what_was_not_shown_is_left_out() -> None:
    stored = GOOD.as_dict()
    assert stored["mechanical"] == "sound"
    assert stored["probe"] == {
        "n": 3,
        "gap_to_candidate": pytest.approx(4e-4),
        "gap_to_parent": pytest.approx(0.5),
        "gap_to_base": pytest.approx(1.0, abs=1e-3),
        "tolerance": TOLERANCE,
    }
    assert stored["retention"] == {
        "n": 64,
        "n_lost": 0,
        "margin": 0.1,
        "n_asked": None,
        "loss_bound": pytest.approx(0.0457297, abs=1e-7),
        "n_open": 0,
        "measure": "answers",
        "lost": (),
    }
    assert Evidence().as_dict() == {"mechanical": None}
    assert replace(GOOD, left_out=("canary: why",)).as_dict()["left_out"] == ["canary: why"]
    assert Evidence(mechanical_fault="x").as_dict() == {"mechanical": "x"}


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (replace(GOOD, retention=replace(KEPT, n_lost=3)), True),
        (GOOD, False),
        (replace(GOOD, retention=None), False),
        (replace(GOOD, retention=replace(KEPT, n=63)), False),
        (replace(GOOD, retention=replace(KEPT, n_lost=3), mechanical_fault="a file is damaged"), False),
        (replace(GOOD, needs_acceptance=True), False),
    ],
)
def test_forgetting_is_told_from_other_faults(evidence: Evidence, expected: bool) -> None:
    verdict = decide(evidence)
    assert verdict.has_forgotten is expected
    assert not (verdict.has_forgotten and verdict.has_passed)
