"""The teacher may refuse a hint: one without an effect on it, or one that makes it too different."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from burnish.journal import Journal
from burnish.journal.tables import SampleRow
from burnish.learner.data.rows import Row
from burnish.learner.data.samples import Sample
from burnish.learner.data.teacher_prompts import neutral
from burnish.learner.objectives.distillation import FAR, MIN_OVERLAP, UNMOVED, Distillation, refusal
from burnish.learner.run.ledger import Ledger, Ready
from burnish.learner.run.trainer import Trainer
from burnish.learner.step.report import StepReport
from burnish.records import Reward
from tests.factories import interaction, user
from tests.turns import add_turn

Make = Callable[..., Trainer]
Samples = Callable[..., list[Sample]]


@pytest.mark.parametrize(
    ("reward", "gain", "overlap", "reason"),
    [
        (-1.0, -0.2, 0.5, None),
        (-1.0, 0.0, 0.5, UNMOVED),
        (-1.0, 0.3, 0.5, None),  # a near miss is likelier with the hint
        (1.0, 0.3, 0.5, None),  # a hint on a liked reply need not change it
        (None, 0.3, 0.5, None),
        (-1.0, -0.2, MIN_OVERLAP / 2, FAR),
        (1.0, 0.3, MIN_OVERLAP / 2, FAR),
    ],
)
def test_each_rule(reward: float | None, gain: float, overlap: float, reason: str | None) -> None:
    assert refusal(reward, gain, overlap) == reason


def test_a_neutral_hint_has_as_many_words_and_none_of_the_hint_s() -> None:
    for hint in ("Use bold.", "Write " * 40 + "so."):
        assert len(neutral(hint).split()) == len(hint.split())
    assert "bold" not in neutral("Use bold text please.")


def test_a_hint_without_more_effect_than_a_neutral_one_is_refused_and_named(
    make_trainer: Make, make_samples: Samples
) -> None:
    trainer, objective = make_trainer(), Distillation(top_k=20)
    hinted = [sample for sample in make_samples(6, reward=-1.0) if sample.hint is not None]
    assert len(hinted) == 2
    same = [replace(sample, hinted_prompt_ids=sample.control_prompt_ids) for sample in hinted]
    rows = [Row.of(sample) for sample in same]
    facts = objective.stamp(rows, trainer.policy)
    assert objective.refusals.keys() == {
        sample.interaction_id for sample in same
    }  # a random model's top 20 may be far as well
    assert UNMOVED in objective.refusals.values()
    assert (facts["n_rows"], facts[f"n_{UNMOVED}"] + facts[f"n_{FAR}"]) == (0.0, 2.0)
    assert not any(row.streams for row in rows)
    unchecked = Distillation(top_k=20, check_hints=False)
    assert unchecked.stamp(rows, trainer.policy)["n_rows"] == 2.0
    assert not unchecked.refusals


def test_the_reason_is_kept_with_the_row(journal: Journal, make_trainer: Make, make_samples: Samples) -> None:
    trainer = make_trainer(check_hints=True)
    hinted = [
        replace(s, hinted_prompt_ids=s.control_prompt_ids) for s in make_samples(4, reward=-1.0) if s.hint is not None
    ]
    result = trainer.step(hinted)
    assert result.refusals.keys() == {sample.interaction_id for sample in hinted}
    ledger = Ledger(journal, "agent")
    step = ledger.open(0, [_ready(journal, sample) for sample in hinted])
    ledger.announce(step, "digest", StepReport.of(result))
    with journal.read() as session:
        rows = session.query(SampleRow).all()
        assert {row.interaction_id: row.hint_status for row in rows} == result.refusals


def _ready(journal: Journal, sample: Sample) -> Ready:
    turn: Any = interaction([user("a")], interaction_id=sample.interaction_id)
    add_turn(journal, turn)
    return Ready(turn, "s", Reward(-1.0, "judge", (), sample.hint))
