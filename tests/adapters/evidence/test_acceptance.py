"""Acceptance prompts: no version may be worse than the best one so far, however small each loss."""

from dataclasses import replace

import pytest

from burnish.adapters.evidence import acceptance
from burnish.adapters.evidence.acceptance import Acceptance
from burnish.adapters.evidence.gate import decide
from burnish.journal import Journal
from burnish.journal.tables import VersionRow
from burnish.records import VersionState
from tests.adapters.evidence.test_gate import GOOD


def shown(n_passed: int, n_best: int | None, margin: float = 0.05) -> Acceptance:
    return Acceptance(n=100, n_passed=n_passed, n_best=n_best, margin=margin, digest="d")


@pytest.mark.parametrize(
    ("n_passed", "n_best", "is_good"),
    [(0, None, True), (60, 60, True), (90, 60, True), (55, 60, True), (54, 60, False), (0, 60, False)],
)
def test_the_margin_is_of_all_prompts(n_passed: int, n_best: int | None, is_good: bool) -> None:
    assert (not acceptance.faults(shown(n_passed, n_best))) is is_good


@pytest.mark.parametrize(("margin", "n_passed", "told"), [(0.0, 59, "0%"), (0.025, 57, "2.5%")])
def test_what_is_refused_is_told_with_the_margin_as_it_was_set(margin: float, n_passed: int, told: str) -> None:
    assert acceptance.faults(shown(n_passed, 60, margin=margin)) == [
        f"{n_passed} of 100 replies to acceptance prompts passed, the best version so far 60: {told} of them are "
        "tolerated"
    ]


@pytest.mark.parametrize(("n_passed", "is_good"), [(41, True), (40, True), (39, False)])
def test_what_is_as_good_as_the_live_one_is_let_through_below_the_margin(n_passed: int, is_good: bool) -> None:
    """Otherwise a live version at the margin's edge could never be replaced."""
    assert (not acceptance.faults(replace(shown(n_passed, 60), n_live=40))) is is_good


def test_what_was_not_shown_never_passes() -> None:
    assert acceptance.faults(None) == ["insufficient evidence: the acceptance prompts were not asked"]


def test_the_gate_asks_for_them_where_there_are_some() -> None:
    assert decide(GOOD).has_passed
    assert not decide(replace(GOOD, needs_acceptance=True)).has_passed
    assert not decide(replace(GOOD, needs_acceptance=True, acceptance=shown(40, 60))).has_passed
    assert decide(replace(GOOD, needs_acceptance=True, acceptance=shown(58, 60))).has_passed


def test_the_best_is_of_those_that_went_live_with_these_prompts(journal: Journal) -> None:
    told = [
        (1, VersionState.RETIRED, shown(50, None)),
        (2, VersionState.LIVE, shown(46, 50)),
        (3, VersionState.REFUSED, shown(99, 50)),
        (4, VersionState.ROLLED_BACK, shown(98, 50)),
        (5, VersionState.RETIRED, Acceptance(100, 97, None, 0.05, "another file")),
    ]
    with journal.write() as session:
        assert acceptance.best(session, "agent", "d") is None
        for number, state, each in told:
            evidence = {"acceptance": each.as_dict()}
            session.add(
                VersionRow(
                    agent="agent", version=number, parent=0, digest="", state=state, evidence=evidence, created_at=0.0
                )
            )
        session.add(
            VersionRow(
                agent="agent", version=6, parent=0, digest="", state=VersionState.RETIRED, evidence={}, created_at=0.0
            )
        )
        session.flush()
        assert acceptance.best(session, "agent", "d") == 50
        assert acceptance.of_live(session, "agent", "d") == 46
        assert acceptance.of_live(session, "agent", "another file") is None
        assert acceptance.best(session, "other", "d") is None
