"""Rows that cannot be trained are dropped with a code, and the step continues without them."""

import math
from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.learner.data.filters import admit
from burnish.learner.data.samples import Sample, SkipReason, defect
from burnish.learner.run.trainer import Trainer

Make = Callable[..., Trainer]
Samples = Callable[..., list[Sample]]

BAD = [
    ({"behaviour_logprobs": array("f", [float("nan")])}, SkipReason.QUARANTINED),
    (
        {"completion_ids": array("i", [10, 11]), "behaviour_logprobs": array("f", [-1.0, float("nan")])},
        SkipReason.BAD_LOGPROBS,
    ),
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
def test_a_bad_row_is_left_out_and_does_not_change_the_step_of_the_others(
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


IDS = st.lists(st.integers(-1, 300), max_size=80)
LOGPROBS = st.lists(st.floats(-50.0, 0.0) | st.sampled_from([math.nan, math.inf, -math.inf, 0.5]), max_size=80)


@given(IDS, IDS, LOGPROBS)
def test_a_sample_without_a_defect_can_be_trained_on(
    prompt_ids: list[int], ids: list[int], logprobs: list[float]
) -> None:
    if defect(prompt_ids, ids, logprobs, 261) is None:
        assert prompt_ids and len(ids) == len(logprobs) > 0
        assert all(0 <= token < 261 for token in (*prompt_ids, *ids))
        assert all(math.isfinite(value) and value <= 1e-6 for value in logprobs)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-1.0, math.nan])), max_size=12))
def test_every_sample_is_admitted_or_has_a_reason(drawn: list[tuple[int, float]]) -> None:
    samples = [
        Sample(
            interaction_id=f"c{i}",
            version=1,
            prompt_ids=array("i", [5, 6]),
            completion_ids=array("i", [10 + reply, 0]),
            behaviour_logprobs=array("f", [logprob, -1.0]),
            has_ratio=True,
            reward=1.0,
            reward_source="judge",
            record_ids=(),
            hint=None,
            hinted_prompt_ids=None,
            is_hint_lost=False,
            session=None,
            key_id="k",
            user=None,
        )
        for i, (reply, logprob) in enumerate(drawn)
    ]
    kept, dropped = admit(samples, 261)
    names = [sample.interaction_id for sample in kept]
    assert sorted([*names, *dropped]) == sorted(sample.interaction_id for sample in samples)
    assert names == sorted(names, key=lambda name: int(name[1:]))
    replies = [tuple(sample.completion_ids) for sample in kept]
    assert len(set(replies)) == len(replies)  # a broken row never shuts out its sound twin
    assert set(replies) == {tuple(s.completion_ids) for s in samples if math.isfinite(s.behaviour_logprobs[0])}


LONG = [f"word{i}" for i in range(60)]


def _said(sample: Sample, name: str, text: str, **changes: Any) -> Sample:
    return replace(sample, interaction_id=name, messages=[{"role": "user", "content": text}], **changes)


@pytest.mark.parametrize(
    ("text", "changes", "is_kept"),
    [
        ("COPY, 1  2!", {}, False),
        ("copy 1 3", {}, True),
        ("copy 1 2 please", {}, True),
        ("copy 1 2", {"user": "bob"}, True),  # another voice
        ("copy 1 2", {"key_id": "other"}, True),
        ("copy 1 2", {"reward": 1.0}, True),  # other words on it
        ("copy 1 2", {"completion_ids": array("i", [7, 8, 0]), "behaviour_logprobs": array("f", [-1.0] * 3)}, True),
    ],
)
def test_from_one_voice_the_same_words_count_once(
    make_samples: Samples, text: str, changes: dict[str, Any], is_kept: bool
) -> None:
    first = replace(_said(make_samples(1)[0], "first", "copy 1 2"), reward=-1.0)
    again = _said(replace(first, prompt_ids=array("i", [5, 6, 7])), "again", text, **changes)
    kept, dropped = admit([first, again], 261)
    assert [sample.interaction_id for sample in kept] == (["first", "again"] if is_kept else ["first"])
    assert dropped == ({} if is_kept else {"again": SkipReason.DUPLICATED})
    assert len(admit([first, again], 261, keep_duplicates=True)[0]) == 2


def test_long_texts_that_differ_a_little_count_once(make_samples: Samples) -> None:
    first = _said(make_samples(1)[0], "first", " ".join(LONG))
    again = _said(replace(first, prompt_ids=array("i", [5])), "again", " ".join([*LONG[:-1], "other"]))
    other = _said(replace(first, prompt_ids=array("i", [6])), "other", " ".join([*LONG[:30], *LONG[:30]]))
    kept, dropped = admit([first, again, other], 261)
    assert [sample.interaction_id for sample in kept] == ["first", "other"]
    assert dropped == {"again": SkipReason.DUPLICATED}
