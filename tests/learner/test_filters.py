"""Rows that cannot be trained are dropped with a code, and the step goes on without them."""

from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from learner.filters import admit
from learner.samples import Sample, SkipReason
from learner.step import Trainer

Make = Callable[..., Trainer]
Samples = Callable[..., list[Sample]]

BAD = [
    ({"behaviour_logprobs": array("f", [float("nan")])}, SkipReason.QUARANTINED),
    ({"completion_ids": array("i", [10, 11]), "behaviour_logprobs": array("f", [-1.0, float("nan")])}, SkipReason.BAD_LOGPROBS),
    (
        {"completion_ids": array("i", [10, 11]), "behaviour_logprobs": array("f", [-1.0, float("-inf")])},
        SkipReason.BAD_LOGPROBS,
    ),
    ({"completion_ids": array("i", [10, 11]), "behaviour_logprobs": array("f", [0.0, 0.0])}, SkipReason.BAD_LOGPROBS),
    ({"completion_ids": array("i"), "behaviour_logprobs": array("f")}, SkipReason.EMPTY),
    ({"prompt_ids": array("i")}, SkipReason.EMPTY),
    ({"completion_ids": array("i", [10, 261]), "behaviour_logprobs": array("f", [-1.0, -1.0])}, SkipReason.FOREIGN_IDS),
    ({"prompt_ids": array("i", [5, -2])}, SkipReason.FOREIGN_IDS),
    ({"completion_ids": array("i", [9] * 70), "behaviour_logprobs": array("f", [-1.0] * 70)}, SkipReason.DEGENERATE),
]


@pytest.mark.parametrize(("changes", "reason"), BAD)
def test_a_bad_row_is_left_out_and_the_others_give_the_step_that_they_would_have_given(
    make_trainer: Make, make_samples: Samples, changes: dict[str, Any], reason: SkipReason
) -> None:
    samples = make_samples(5)
    with_bad, without = make_trainer(), make_trainer()
    result = with_bad.step([samples[0], replace(samples[1], **changes), *samples[2:]])
    without.step([samples[0], *samples[2:]])
    assert result.is_update and result.dropped == {samples[1].interaction_id: reason}
    assert result.metrics[f"dropped/{reason}"] == 1.0
    assert samples[1].interaction_id not in (*result.trained, *result.idle)
    assert all(torch.equal(t, without.policy.parameters()[name]) for name, t in with_bad.policy.parameters().items())


def test_the_same_reply_to_the_same_prompt_counts_once(make_trainer: Make, make_samples: Samples) -> None:
    samples = make_samples(3)
    again = replace(samples[0], interaction_id="again", reward=1.0, session="other")
    other = replace(samples[0], interaction_id="other", completion_ids=array("i", [*samples[0].completion_ids[:-1], 7]))
    kept, dropped = admit([*samples, again, other], 261)
    assert [sample.interaction_id for sample in kept] == [*(s.interaction_id for s in samples), "other"]
    assert dropped == {"again": SkipReason.DUPLICATED}
    assert len(admit([*samples, again], 261, keep_duplicates=True)[0]) == 4
    assert make_trainer().step([*samples, again]).dropped == dropped


def test_a_batch_of_nothing_but_bad_rows_is_an_empty_step(make_trainer: Make, make_samples: Samples) -> None:
    bad = [replace(sample, prompt_ids=array("i")) for sample in make_samples(3)]
    result = make_trainer().step(bad)
    assert not result.is_update and len(result.dropped) == 3 and result.idle == ()
    assert result.reason == "no row had anything to teach"
