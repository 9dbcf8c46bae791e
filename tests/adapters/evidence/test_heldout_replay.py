"""The full tier's verdict on held-out pairs: tolerated, not tolerated, or insufficient."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.adapters.evidence.gate import Evidence, decide
from burnish.adapters.evidence.heldout_replay import Measures, Replay, Rules, faults
from burnish.adapters.evidence.holdout import is_held_out

LIKE = Measures(length=20.0, repetition=0.0, n_calls=50, n_broken=0)
EVEN = Replay(n=200, n_won=40, n_lost=40, n_undecided=0, candidate=LIKE, live=LIKE, rules=Rules())


def test_an_even_candidate_passes_and_its_bound_is_as_worked_out_by_hand() -> None:
    assert faults(EVEN) == []
    # (40.5 − 40.5)/202 + 1.6449·√81/202
    assert EVEN.loss_bound == pytest.approx(1.6448536 * 9.0 / 202.0, abs=1e-6)
    assert replace(EVEN, n_won=0, n_lost=0).loss_bound == pytest.approx(1.6448536 / 202.0, abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n_lost": 60, "n_won": 40}, "lost 60 and won 40 of 200 held-out pairs"),
        ({"n": 63, "n_lost": 0, "n_won": 63}, "insufficient evidence: 63 held-out pairs decided, 64 needed"),
        ({"n": 120, "n_lost": 0, "n_undecided": 60}, "insufficient evidence: 60 held-out pairs decided"),
        ({"n_undecided": 41, "n_lost": 0}, "the judge left 41 of 200 held-out pairs undecided"),
        (
            {"n": 60, "n_lost": 0, "n_won": 0, "n_unasked": 20},
            "60 held-out pairs decided, 64 needed; the engine refused 20 of 80 held-out turns",
        ),
        (
            {"n_unasked": 51},
            "insufficient evidence: the engine refused 51 of 251 held-out turns",
        ),
        ({"candidate": replace(LIKE, length=33.0)}, "replies of 33.0 tokens"),
        ({"candidate": replace(LIKE, length=5.0)}, "replies of 5.0 tokens"),
        ({"candidate": replace(LIKE, repetition=0.2)}, "repeats 20.0% of its 4-grams"),
        ({"candidate": replace(LIKE, n_broken=2)}, "4.0% of its tool calls on held-out turns cannot be read"),
    ],
)
def test_every_fault_is_named(changes: dict[str, object], said: str) -> None:
    told = faults(replace(EVEN, **changes))
    assert len(told) == 1 and said in told[0]


def test_a_few_turns_that_cannot_be_asked_are_told_and_no_fault() -> None:
    seen = replace(EVEN, n_unasked=50)
    assert faults(seen) == []
    assert (seen.as_dict()["n_unasked"], seen.n_decided) == (50, 200)


def test_nothing_shown_is_no_pass() -> None:
    assert faults(None) == ["insufficient evidence: no held-out turns were answered again"]
    silent = Evidence(is_mechanical_checked=True, needs_retention=False, needs_replay=True)
    assert not decide(silent).has_passed


def test_the_figures_are_stored() -> None:
    told = EVEN.as_dict()
    assert (told["n"], told["n_decided"], told["loss_bound"]) == (200, 200, EVEN.loss_bound)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
def test_the_bound_lies_above_what_was_seen_and_more_losses_never_help(won: int, lost: int, same: int) -> None:
    seen = replace(EVEN, n=won + lost + same + 1, n_won=won, n_lost=lost)
    assert seen.loss_bound >= (lost - won) / (seen.n + 2.0)
    worse = replace(seen, n_lost=lost + 1)
    assert worse.loss_bound >= seen.loss_bound - 1e-12 if same else True


@given(st.floats(0.01, 0.5))
def test_about_so_many_sessions_are_held_out_and_always_the_same(share: float) -> None:
    names = [f"s-{i}" for i in range(2000)]
    held = {name for name in names if is_held_out(name, share)}
    assert abs(len(held) / 2000 - share) < 0.05
    assert held == {name for name in reversed(names) if is_held_out(name, share)}
    assert held <= {name for name in names if is_held_out(name, min(0.99, share * 1.5))}
    assert not any(is_held_out(name, 0.0) for name in names)
