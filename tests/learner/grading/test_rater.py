"""The rater: it ranks what it has not seen, or it does not speak."""

import pytest
import torch
from torch import Tensor

from burnish.learner.data.rows import Text
from burnish.learner.grading import rater
from burnish.learner.grading.rater import Rated
from burnish.learner.model.policy import Policy


def rated(praised: list[bool], prompts: list[str] | None = None) -> list[Rated]:
    names = prompts or [f"p{i}" for i in range(len(praised))]
    return [Rated(f"r{i}", names[i], Text([1], [2]), is_good) for i, is_good in enumerate(praised)]


def noise(n: int, n_features: int = 8) -> Tensor:
    return torch.randn(n, n_features, generator=torch.Generator().manual_seed(0))


def test_it_learns_what_people_praise() -> None:
    found = noise(80)
    judge = rater.fit(found, rated((found[:, 3] > 0).tolist()))

    assert judge is not None and judge.is_fit and judge.rank > 0.9
    new = noise(40, 8).flip(0) * 2
    scores = torch.tensor(judge.scores(new))
    assert scores[new[:, 3] > 0].mean() > 0.9 and scores[new[:, 3] < 0].mean() < 0.1
    assert ((scores >= 0) & (scores <= 1)).all()


def test_it_does_not_speak_where_there_is_nothing_to_learn() -> None:
    found = noise(200)
    judge = rater.fit(found, rated([i % 2 == 0 for i in range(200)]))

    assert judge is not None and not judge.is_fit
    assert 0.35 < judge.rank < 0.65


def test_prompts_that_it_has_seen_do_not_count_as_unseen() -> None:
    """Whether a reply is praised depends on the prompt alone, and each prompt has four ratings."""
    prompts = [f"p{i // 4}" for i in range(80)]
    found = torch.nn.functional.one_hot(torch.arange(80) // 4, 20).float()
    judge = rater.fit(found, rated([i // 4 % 2 == 0 for i in range(80)], prompts))

    assert judge is not None and not judge.is_fit
    assert torch.tensor(judge.scores(found))[:4].min() > 0.8  # it knows these prompts by heart


@pytest.mark.parametrize("n_praised", [rater.MIN_RATINGS - 1, rater.MIN_RATINGS])
def test_too_few_of_one_kind_are_not_enough(n_praised: int) -> None:
    found = torch.cat([noise(n_praised) + 5, noise(60) - 5])
    judge = rater.fit(found, rated([True] * n_praised + [False] * 60))

    assert judge is not None and judge.rank == 1.0
    assert judge.is_fit == (n_praised == rater.MIN_RATINGS)


def test_praise_alone_makes_no_rater() -> None:
    assert rater.fit(noise(20), rated([True] * 20)) is None


def test_the_base_reads_each_reply_by_itself(policy: Policy) -> None:
    """Neither the rows beside a reply nor the adapter change what is known of it."""
    rows = [Text([5, 6, 7], [8, 9, 0]), Text([5], [8, 0]), Text([4] * 30, [3] * 300)]
    together = rater.features(policy, rows)
    with torch.no_grad():
        for tensor in policy.parameters().values():
            tensor.add_(0.3)
    alone = torch.cat([rater.features(policy, [row]) for row in rows])

    assert together.shape[0] == 3 and torch.isfinite(together).all()
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(together[0], together[1])
