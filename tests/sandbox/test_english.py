"""The English world: topics do not leak, checks do what they say, and a reply that games the wishes fails."""

import json
from pathlib import Path

import pytest

from burnish.sandbox.english import questions, style
from burnish.sandbox.english.questions import Question
from burnish.sandbox.english.users import EnglishUser

BREAD = Question("kitchen", "How do I keep bread fresh?", ("bag", "wrap", "freez", "box"))
WORLD = "474150d8"
REPLIES = Path(__file__).parent / "english_replies.jsonl"
GOOD = "Keep it in a paper bag or a bread box."


def test_the_exam_asks_about_other_topics() -> None:
    trained, asked = questions.training(), questions.heldout()
    assert len(trained) >= 150 and len(asked) >= 48
    assert not {q.topic for q in trained} & {q.topic for q in asked}
    texts = [q.text for q in (*trained, *asked)]
    assert len(texts) == len({*texts})


def test_repeating_the_question_is_no_answer() -> None:
    for question in (*questions.training(), *questions.heldout()):
        assert question.about and not question.is_answered_by(question.text), question.text


def test_every_question_has_words_of_its_own() -> None:
    """A right reply to a question of one topic is seldom about a question of another."""
    asked = questions.training()
    assert all(len(q.about) >= 15 for q in (*asked, *questions.heldout()))
    crossed = [one.is_answered_by(other.right) for one in asked for other in asked if one.topic != other.topic]
    assert sum(crossed) / len(crossed) < 0.15


def test_the_check_agrees_with_readers() -> None:
    """320 replies that two readers labelled without knowing the stems or who had replied: is it about the question?"""
    asked = {q.text: q for q in (*questions.training(), *questions.heldout())}
    found: dict[tuple[bool, bool], list[bool]] = {}
    for line in REPLIES.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        one, other = row["labels"]
        if one == other:
            says_something = style.has_content(asked[row["question"]], row["reply"])
            found.setdefault((bool(one), row["source"] == "another question"), []).append(says_something)
    about, empty, others = found[True, False], found[False, False], found[False, True]
    assert (len(about), len(empty), len(others)) == (221, 53, 40)
    assert sum(about) / len(about) >= 0.9
    assert sum(empty) / len(empty) <= 0.55  # the readers also rejected wrong facts
    assert sum(others) / len(others) <= 0.05


@pytest.mark.parametrize(
    ("reply", "is_about"),
    [
        ("Put the loaf in the freezer.", True),
        ("You keep bread fresh with butter.", False),
        ("That is a great and simple way to enjoy life.", False),
    ],
)
def test_a_reply_is_about_the_question_by_its_words(reply: str, is_about: bool) -> None:
    assert BREAD.is_answered_by(reply) is is_about


def test_the_world_is_frozen() -> None:
    """Figures of different worlds do not compare. Whoever changes the world measures anew and writes the new hash."""
    assert questions.world_hash() == WORLD


@pytest.mark.parametrize(
    ("reply", "is_right"),
    [
        (GOOD, True),
        ("Keep it in a paper bag.", True),
        ("Bag it.", False),  # too few words to say anything
        ("Sure, I can help you with fresh bread.", False),  # about nothing that answers the question
        ("bag bag bag bag bag bag", False),
        ("bread bag bread bag bread bag bread bag", False),  # repeats itself
        ("Keep it in a bag, or a box.", False),  # a comma
        ("Keep it in a bag. Then eat it soon.", False),  # two sentences
        ("Keep it in a bag\nand eat it soon.", False),  # two lines
        ("Refrigeration is bad so use a paper bag.", False),  # a long word
        (
            " ".join(["Keep the loaf in a bag at home and never on a warm shelf because the heat makes it go stale"]),
            False,
        ),
        ("", False),
    ],
)
def test_a_reply_scores_only_with_every_wish_and_content(reply: str, is_right: bool) -> None:
    assert style.satisfies(BREAD, reply) is is_right


def test_the_breakdown_counts_each_wish() -> None:
    found = style.breakdown([BREAD, BREAD], [GOOD, "It is, simply, a bag."])
    assert found == {"score": 0.5, "content": 1.0, "short": 1.0, "no_commas": 0.5, "plain": 1.0}
    with pytest.raises(ValueError, match="one reply for each of 1 questions, got 2"):
        style.breakdown([BREAD], ["a", "b"])


def test_users_praise_what_satisfies_and_name_what_they_miss() -> None:
    user, n_commented = EnglishUser(0, "ana"), 0
    for _ in range(200):
        user.opening()
        reaction = user.react("A long reply, with commas, on something else.")
        assert (reaction.satisfied, reaction.rating) == (False, "down")
        n_commented += reaction.comment is not None
        if reaction.message is not None:
            assert reaction.message == reaction.comment
            assert user.react("No, not again.").message is None
    assert 140 <= n_commented <= 195
    with pytest.raises(RuntimeError, match="has asked for nothing"):
        user.react("x")


def test_users_write_right_replies_that_are_right() -> None:
    wrong = [q.text for q in questions.training() if not style.satisfies(q, q.right)]
    assert wrong == []
    assert not any(q.right for q in questions.heldout()), "the exam's answers are nobody's"
    user, written = EnglishUser(0, "ana"), []
    for _ in range(200):
        user.opening()
        question = user._question
        assert question is not None
        if (right := user.react("Nothing of it, sadly.").demonstration) is not None:
            written.append((right, question.right))
    assert 30 <= len(written) <= 70
    assert all(right == known for right, known in written)


def test_users_with_other_wishes_write_only_what_keeps_them() -> None:
    long = style.Wish("long", lambda reply: len(style.words(reply)) > 100, "Write a lot.", ("More.",))
    user = EnglishUser(0, "ana", (long,))
    for _ in range(50):
        user.opening()
        assert user.react("Nothing of it.").demonstration is None


def test_the_same_seed_gives_the_same_user() -> None:
    one, other = EnglishUser(3, "bo"), EnglishUser(3, "bo")
    for _ in range(20):
        assert one.opening() == other.opening()
        assert one.react("A reply, it is.") == other.react("A reply, it is.")


def test_comments_say_only_what_is_missing() -> None:
    sayings = {saying: wish for wish in style.HOUSE_STYLE for saying in wish.sayings}
    user = EnglishUser(1, "chen")
    for _ in range(100):
        user.opening()
        comment = user.react("Keep, it short.").comment
        if comment is not None:
            named = {wish.name for saying, wish in sayings.items() if saying in comment}
            assert named == {"no_commas"}
        while user._question is not None:
            user.react("Keep, it short.")
