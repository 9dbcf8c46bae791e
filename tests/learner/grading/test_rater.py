"""The rater: it ranks what it has not seen, or it does not speak."""

import random

import pytest

from burnish.learner.grading import rater
from burnish.learner.grading.rater import Rated

WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "saw", "its", "own", "small", "red", "house", "by", "a", "river")


def reply(rng: random.Random, n_words: int, comma: bool = False) -> str:
    found = [rng.choice(WORDS) for _ in range(n_words)]
    if comma:
        found[len(found) // 2] += ","
    return " ".join(found).capitalize() + "."


def ratings(n: int, seed: int = 0) -> list[Rated]:
    """Replies of 5 to 40 words. Those of at most 20 words without a comma are praised."""
    rng = random.Random(seed)
    found = []
    for number in range(n):
        n_words, comma = rng.randint(5, 40), rng.random() < 0.3
        found.append(Rated(f"r{number}", reply(rng, n_words, comma), n_words <= 20 and not comma))
    return found


def test_it_learns_what_form_people_praise() -> None:
    judge = rater.fit(ratings(96))
    assert judge is not None and judge.is_fit and judge.rank > 0.9

    rng = random.Random(1)
    good, long, comma = (judge.scores([reply(rng, *form) for _ in range(20)]) for form in ((12,), (30,), (12, True)))
    assert min(good) > 0.5 > max(long) and sum(good) > sum(comma) + 2.0
    assert all(0.0 <= score <= 1.0 for score in (*good, *long, *comma))


def test_single_words_do_not_count() -> None:
    """Or a policy would say the words that were praised, whatever the question."""
    rng = random.Random(0)
    judge = rater.fit(ratings(96))
    assert judge is not None
    text = reply(rng, 12)
    scores = judge.scores([text, text.replace(" the ", " ten ").replace(" cat ", " dog ")])
    assert scores[0] == scores[1]


def test_the_same_ratings_make_the_same_rater() -> None:
    texts = [each.text for each in ratings(20, seed=3)]
    first, second = rater.fit(ratings(64)), rater.fit(ratings(64))
    assert first is not None and second is not None
    assert first.rank == second.rank and first.scores(texts) == second.scores(texts)


def test_it_does_not_speak_where_there_is_nothing_to_learn() -> None:
    rng = random.Random(0)
    judge = rater.fit([Rated(str(i), reply(rng, 12), i % 2 == 0) for i in range(200)])
    assert judge is not None and not judge.is_fit
    assert 0.35 < judge.rank < 0.65


@pytest.mark.parametrize("n_praised", [rater.MIN_RATINGS - 1, rater.MIN_RATINGS])
def test_too_few_of_one_kind_are_not_enough(n_praised: int) -> None:
    rng = random.Random(0)
    praised = [Rated(f"p{i}", reply(rng, 8), True) for i in range(n_praised)]
    judge = rater.fit(praised + [Rated(f"d{i}", reply(rng, 40), False) for i in range(60)])
    assert judge is not None and judge.rank > 0.95
    assert judge.is_fit == (n_praised == rater.MIN_RATINGS)


def test_praise_alone_makes_no_rater() -> None:
    assert rater.fit([each for each in ratings(40) if each.is_praised]) is None


def test_with_fewer_ratings_than_parts_the_rank_is_chance() -> None:
    judge = rater.fit([Rated("up", "Yes.", True), Rated("down", "No, never, not at all.", False)])
    assert judge is not None and not judge.is_fit and judge.rank == 0.5


@pytest.mark.parametrize("text", ["", " \n\n ", "…", "1. one\n2. two\n- three", "你好。再见。", "a" * 10_000])
def test_any_text_has_a_form(text: str) -> None:
    found = rater.form(text)
    assert len(found) == len(rater.form("The cat.")) and all(value >= 0 for value in found)
