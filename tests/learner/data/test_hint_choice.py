"""Of several hints of one ballot the teacher chooses the one with the greatest overlap of its top K and the
student's."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from burnish.journal import Journal
from burnish.journal.tables import SampleRow
from burnish.learner.data.rows import Row
from burnish.learner.data.samples import Hinted, Sample, to_sample
from burnish.learner.objectives.distillation import Distillation
from burnish.learner.run.ledger import Ledger, Ready
from burnish.learner.run.trainer import Trainer
from burnish.learner.step.report import StepReport
from burnish.records import Reward
from tests.factories import interaction, user
from tests.turns import add_turn

Make = Callable[..., Trainer]
Samples = Callable[..., list[Sample]]


def with_its_own_prompt(samples: list[Sample], **changes: Any) -> Sample:
    """A hinted row that may also be taught from its own prompt. There student and teacher, both fresh, agree fully."""
    sample = next(sample for sample in samples if sample.hint is not None)
    return replace(sample, candidates=(Hinted("as it was", sample.prompt_ids, None),), **changes)


def test_the_hint_with_the_greatest_overlap_is_taught(make_trainer: Make, make_samples: Samples) -> None:
    trainer, objective = make_trainer(), Distillation(top_k=5, check_hints=False)
    rows = [Row.of(with_its_own_prompt(make_samples(4, reward=-1.0)))]
    facts = objective.stamp(rows, trainer.policy)
    chosen = rows[0].sample
    assert chosen is not None and objective.chosen == {chosen.interaction_id: "as it was"}
    assert (chosen.hint, chosen.hinted_prompt_ids, chosen.candidates) == ("as it was", chosen.prompt_ids, ())
    assert facts["overlap"] == 1.0
    assert rows[0].streams["teacher_top"].shape == (chosen.n_tokens, 5)


def test_on_a_tie_the_hint_of_most_votes_stays(make_trainer: Make, make_samples: Samples) -> None:
    trainer, objective = make_trainer(), Distillation(top_k=5, check_hints=False)
    sample = with_its_own_prompt(make_samples(4, reward=-1.0))
    assert sample.hinted_prompt_ids is not None
    again = replace(sample, candidates=(Hinted("the same in other words", sample.hinted_prompt_ids, None),))
    rows = [Row.of(again)]
    objective.stamp(rows, trainer.policy)
    assert objective.chosen == {} and rows[0].sample is not None
    assert (rows[0].sample.hint, rows[0].sample.candidates) == (sample.hint, ())


def test_the_hint_that_was_taught_is_what_the_journal_keeps(
    journal: Journal, make_trainer: Make, make_samples: Samples
) -> None:
    sample = with_its_own_prompt(make_samples(4, reward=-1.0))
    result = make_trainer(check_hints=False).step([sample])
    ledger = Ledger(journal, "agent")
    turn = interaction([user("a")], interaction_id=sample.interaction_id)
    add_turn(journal, turn)
    step = ledger.open(0, [Ready(turn, "s", Reward(-1.0, "judge", (), sample.hint))])
    ledger.announce(step, "digest", StepReport.of(result))
    with journal.read() as session:
        assert session.get_one(SampleRow, (step.step_id, sample.interaction_id)).hint == "as it was"


def test_each_candidate_gets_a_prompt_of_its_own(make_trainer: Make, make_samples: Samples) -> None:
    tokenizer = make_trainer().policy.tokenizer
    turn = interaction([user("what is 2 + 2 ?")], prompt_ids=_prompt(tokenizer, "what is 2 + 2 ?"))
    made = to_sample(turn, Reward(-1.0, "judge", (), "Be brief.", candidates=("Use bold text.",)), tokenizer)
    assert isinstance(made, Sample) and made.hinted_prompt_ids is not None
    assert made.hint == "Be brief." and [each.hint for each in made.candidates] == ["Use bold text."]
    assert made.candidates[0].prompt_ids != made.hinted_prompt_ids


def _prompt(tokenizer: Any, text: str) -> Any:
    from array import array

    from burnish.learner.data.teacher_prompts import render

    return array("i", render(tokenizer, [user(text)], ()))


def test_choices_of_an_earlier_step_are_cleared_in_a_step_without_hints(
    make_trainer: Make, make_samples: Samples
) -> None:
    """The journal has no such row of the later step: the learner ended while it published the step."""
    trainer, objective = make_trainer(), Distillation(top_k=5, check_hints=False)
    objective.stamp([Row.of(with_its_own_prompt(make_samples(4, reward=-1.0)))], trainer.policy)
    plain = [replace(sample, hint=None, hinted_prompt_ids=None) for sample in make_samples(2, reward=1.0)]
    objective.stamp([Row.of(sample) for sample in plain], trainer.policy)
    assert objective.chosen == {}
