"""A version's story: rows, step, version, evidence, and when it was live."""

import pytest

from burnish.adapters.registry import lifecycle
from burnish.adapters.registry.lineage import lineage
from burnish.errors import NotFound
from burnish.journal import Journal
from burnish.journal.tables import CanaryRow, ComparisonRow, SampleRow, StepRow, VersionRow
from tests.factories import interaction, user
from tests.turns import add_turn


def publish(journal: Journal, number: int) -> None:
    row = add_turn(journal, interaction([user("a")], interaction_id=f"row-{number}", version=number - 1))
    with journal.write() as session:
        lifecycle.ensure_agent(session, "agent")
        step = StepRow(
            agent="agent", version=number, parent=number - 1, outcome="open", metrics={"n": 1.0}, started_at=1.0
        )
        session.add(step)
        session.flush()
        session.add(SampleRow(step_id=step.step_id, interaction_id=row, reward=1.0, record_ids=["j"]))
        lifecycle.announce(session, "agent", number, parent=number - 1, step_id=step.step_id, digest="d")
    with journal.write() as session:
        lifecycle.promote(
            session, "agent", number, expected=number - 1, actor="gate", reason="passed", evidence={"n": 64}
        )


def test_a_version_tells_its_whole_story(any_journal: Journal) -> None:
    for number in (1, 2, 3):
        publish(any_journal, number)
    with any_journal.write() as session:
        lifecycle.rollback(session, "agent", actor="ana", reason="worse")
        session.add(
            CanaryRow(agent="agent", version=2, baseline=1, kind="canary", share=0.1, state="passed", started_at=1.0)
        )
        for n, outcome in enumerate((1, 1, -1, None)):
            facts = {"candidate_digest": "c", "baseline_digest": "b", "created_at": 1.0, "outcome": outcome}
            session.add(ComparisonRow(agent="agent", version=2, interaction_id=f"t{n}", baseline=1, **facts))
        branch = {
            "step_id": None,
            "digest": "d",
            "state": "live",
            "evidence": {},
            "created_at": 1.0,
            "origin": "branch",
        }
        session.add(VersionRow(agent="agent.u-1", version=1, parent=2, parent_agent="agent", **branch))
    with any_journal.read() as session:
        told = lineage(session, "agent", 2)
        branched = lineage(session, "agent.u-1", 1)
    assert (told["name"], told["aliases"], told["origin"]) == ("agent@v2", ["live"], "step")
    assert told["ancestors"] == ["agent@v1", "agent@v0"]
    assert told["children"] == ["agent@v3", "agent.u-1@v1"]
    assert [row["interaction_id"] for row in told["step"]["rows"]] == ["row-2"]
    assert told["comparisons"] == {"won": 2, "lost": 1, "undecided": 1}
    assert (told["n_turns"], [each["state"] for each in told["canaries"]]) == (1, ["passed"])
    spans = [(span["by"], span["to"] is None, span.get("ended_by")) for span in told["live"]]
    assert spans == [("gate", False, "gate"), ("ana", True, None)]
    assert [entry["action"] for entry in told["history"]] == ["announce", "promote", "promote", "promote"]
    assert (branched["ancestors"], branched["step"]) == (["agent@v2", "agent@v1", "agent@v0"], None)


def test_what_never_was_has_no_story(any_journal: Journal) -> None:
    with any_journal.read() as session, pytest.raises(NotFound, match="no version agent@v9"):
        lineage(session, "agent", 9)
