"""The grader by ratings: what steps were trained on decides how drawn replies score."""

from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest
from world import SETTINGS, Make, World, draw, outcome_of

from burnish.config import Recipe
from burnish.journal import Journal
from burnish.journal.tables import InteractionRow, SampleRow, ShadowGroupRow
from burnish.journal.turns import messages_of
from burnish.learner.data.shadow_groups import GroupLedger
from burnish.learner.grading import content
from burnish.learner.grading.rater import MIN_RATINGS
from burnish.learner.grading.rating_grader import RatingGrader
from burnish.learner.model.policy import Policy
from burnish.learner.run.loop import Loop
from tests.turns import add_feedback

GOOD, BAD = [40, 41, 42, 0], [*range(50, 62), 0]
"""Replies of unlike forms: a short one and a long one."""


@pytest.fixture
def world(journal: Journal, tmp_path: Path, make_trainer: Make) -> World:
    return World(journal, tmp_path, make_trainer)


def add(world: World, n: int, reply: list[int], rating: float | None = None) -> list[str]:
    logprobs = array("f", [-5.0] * len(reply))
    return world.add(n, rating=rating, token_ids=array("i", reply), logprobs=logprobs)


def rate(world: World, n_each: int) -> None:
    """`n_each` praised replies of one kind and `n_each` disliked ones of another, all spent by steps."""
    for rating, reply in ((1.0, GOOD), (-1.0, BAD)):
        add(world, n_each, reply, rating)
    learner = world.learner(world.trainer, max_rows=64)
    live = 0
    while learner.run_once():
        newest = world.steps()[-1][0]
        world.promote(newest, live)
        live = newest
    learner.release_lease()


def grader(world: World) -> RatingGrader:
    return RatingGrader(world.journal, "agent", world.trainer.policy)


def test_replies_like_praised_ones_score_higher(world: World) -> None:
    rate(world, MIN_RATINGS)
    (name,) = world.add(1)
    draw(world, name, [GOOD, BAD], wish="")
    assert grader(world).grade(8) == 1

    state, _, (_, good, bad) = outcome_of(world, name)
    assert state == "scored" and good is not None and bad is not None and good > 0.7 > 0.3 > bad
    with world.journal.read() as session:
        assert session.get_one(ShadowGroupRow, name).judge_id == f"ratings/{MIN_RATINGS}+{MIN_RATINGS}"
    assert grader(world).grade(8) == 0


def test_of_like_forms_the_one_that_fits_the_question_scores_higher(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fits(replies: Sequence[str], question: str, _policy: Policy) -> list[float]:
        asked.append(question)
        return [float("sun" in reply) for reply in replies]

    monkeypatch.setattr(content, "fits", fits)

    def ids(text: str) -> list[int]:
        return [*world.trainer.policy.tokenizer(text)["input_ids"], 0]

    rate(world, MIN_RATINGS)
    (name,) = add(world, 1, GOOD)
    draw(world, name, [ids("red sun"), ids("big dog"), BAD], wish="")
    grader(world).grade(8)
    _, _, (_, about, other, bad) = outcome_of(world, name)
    assert about is not None and other is not None and bad is not None and about > other + 0.1 > other > bad
    with world.journal.read() as session:
        (message,) = messages_of(session, session.get_one(InteractionRow, name).message_digests[-1:])
    assert asked == [message["content"]]


def test_too_few_ratings_score_nothing(world: World) -> None:
    rate(world, MIN_RATINGS - 1)
    (name,) = world.add(1)
    draw(world, name, [GOOD, BAD], wish="")
    assert grader(world).grade(8) == 1

    state, reason, scores = outcome_of(world, name)
    assert state == "dropped" and str(reason).startswith("the rater is unfit: ") and scores == [None, None, None]


def test_only_people_and_programs_rate(world: World) -> None:
    """What a judge thinks, and what is merely implied, trains no rater."""
    rate(world, MIN_RATINGS)
    with world.journal.write() as session:
        for row in session.query(SampleRow).all():
            row.reward_source = "judge"
    (name,) = world.add(1)
    draw(world, name, [GOOD, BAD], wish="")
    grader(world).grade(8)
    assert outcome_of(world, name)[1] == "the rater is unfit: no rating of both kinds"


def test_a_reply_that_somebody_wrote_is_praise(world: World) -> None:
    names = world.add(2, rating=-1.0)
    add_feedback(world.journal, names[0], None, demonstration="3 4 5")
    learner = world.learner(world.trainer, min_rows=2)
    assert learner.run_once()
    world.promote(1, 0)
    with world.journal.read() as session:
        found = grader(world)._ratings(session)
    assert [each.is_praised for each in found] == [False, False, True]
    assert found[-1].text == "3 4 5"


def test_a_hinted_group_waits_for_its_own_grader(world: World) -> None:
    rate(world, MIN_RATINGS)
    (name,) = world.add(1)
    draw(world, name, [GOOD, BAD])
    assert grader(world).grade(8) == 0 and outcome_of(world, name)[0] == "drawn"


def test_a_group_of_equally_bad_replies_is_dropped(world: World) -> None:
    rate(world, MIN_RATINGS)
    (name,) = add(world, 1, BAD)
    draw(world, name, [BAD, BAD[2:]], wish="")
    grader(world).grade(8)
    assert outcome_of(world, name)[:2] == (
        "dropped",
        "no spread: the rater finds all replies equally good",
    )


def test_a_step_learns_from_what_ratings_scored(world: World) -> None:
    rate(world, MIN_RATINGS)
    names = world.add(5)
    for name in names[:2]:
        draw(world, name, [GOOD, BAD], wish="")
    groups = GroupLedger(world.journal, "agent", grader(world))
    live = world.steps()[-1][0]
    loop = Loop(world.ledger, world.store, world.trainer, Recipe(**SETTINGS), None, groups=groups)
    assert loop.run_once()

    assert world.store.manifest("agent", live + 1)["groups"] == names[:2]
    world.promote(live + 1, live)
    assert outcome_of(world, names[0])[0] == "spent"
