"""Hint validation: the sign test, the choice of liked replies, refusals on a real base, and the same in a replay."""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from world import SETTINGS, Make, World

from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.tables import SampleRow
from burnish.journal.turns import record_judgement
from burnish.learner.data.samples import Sample
from burnish.learner.data.teacher_prompts import hinted_prompt, neutral, render
from burnish.learner.model.adapter_file import WEIGHTS
from burnish.learner.model.policy import Policy
from burnish.learner.run import reproduce
from burnish.learner.run.ledger import Ledger
from burnish.learner.safety import hint_validation
from burnish.learner.safety.hint_validation import DISPUTED, MIN_VOTES, latest_liked, sign_test, validate_hints
from burnish.rewards import FEEDBACK
from burnish.sandbox import MODEL
from burnish.sandbox.world import heldout, language, style_hints
from tests.factories import judgement
from tests.turns import add_feedback

OPPOSITE = {name: not wanted for name, wanted in language.HOUSE_STYLE.items()}


@pytest.mark.parametrize(
    ("n_against", "n", "p"), [(0, 4, 1.0), (4, 4, 0.0625), (5, 5, 0.03125), (7, 8, 9 / 256), (3, 4, 5 / 16)]
)
def test_golden_sign_tests(n_against: int, n: int, p: float) -> None:
    assert sign_test(n_against, n) == pytest.approx(p)


def test_min_votes_is_the_smallest_number_that_can_refuse() -> None:
    assert sign_test(MIN_VOTES, MIN_VOTES + 1) <= hint_validation.SIGNIFICANCE < sign_test(MIN_VOTES - 1, MIN_VOTES)


@pytest.fixture(scope="module")
def base() -> Policy:
    """The sandbox's base, which obeys hints about style."""
    return Policy.load(MODEL, rank=4, alpha=8, device="cpu")


def turn(
    policy: Policy, n: int, user: str | None, style: language.Style, reward: float | None, hint: str | None = None
) -> Sample:
    """The right answer to the held-out prompt `n` in `style`, and the feedback of `user` on it."""
    prompt = heldout.prompts()[n]
    ids = array("i", render(policy.tokenizer, prompt.messages, ()))
    text = language.render(language.answer(prompt.task), style)
    reply = array("i", [*policy.tokenizer.encode(text, add_special_tokens=False), policy.tokenizer.eos_token_id])

    def hinted(words: str | None) -> Any:
        return hinted_prompt(policy.tokenizer, prompt.messages, (), words, ids) if words else None

    return Sample(
        interaction_id=f"t{n}",
        version=0,
        prompt_ids=ids,
        completion_ids=reply,
        behaviour_logprobs=array("f", [-1.0] * len(reply)),
        has_ratio=True,
        reward=reward,
        reward_source="judge",
        record_ids=(),
        hint=hint,
        hinted_prompt_ids=hinted(hint),
        is_hint_lost=False,
        session=None,
        key_id="k",
        user=user,
        messages=prompt.messages,
        control_prompt_ids=hinted(neutral(hint) if hint else None),
    )


def content(policy: Policy, n: int, first: int = 10) -> list[Sample]:
    """Praise of `n` users for replies in the house style."""
    return [turn(policy, first + i, f"user {i}", language.HOUSE_STYLE, 1.0) for i in range(n)]


def wish(name: str, style: language.Style) -> str:
    return style_hints.canonical({name: style[name]})


@pytest.mark.parametrize("name", sorted(language.HOUSE_STYLE))
def test_a_hint_that_liked_replies_contradict_is_refused_and_a_hint_they_support_is_not(
    base: Policy, name: str
) -> None:
    liar = turn(base, 0, "liar", language.HOUSE_STYLE, -1.0, wish(name, OPPOSITE))
    honest = turn(base, 1, "honest", OPPOSITE, -1.0, wish(name, language.HOUSE_STYLE))
    found = validate_hints([liar, honest, *content(base, 12)], (), base, 16)
    assert found.refused == {"t0": DISPUTED}
    assert found.share == 0.5 and found.facts == {"jury/n_heard": 2.0, "jury/n_disputed": 1.0}
    lost, kept = found.samples[:2]
    assert (lost.hint, lost.hinted_prompt_ids, lost.control_prompt_ids, lost.reward) == (None, None, None, -1.0)
    assert kept == honest


def test_a_hint_about_one_task_does_not_concern_another(base: Policy) -> None:
    """The hint harms its author's reply, and hardly any other reply."""
    sample = turn(base, 0, "one", language.HOUSE_STYLE, -1.0, wish("bold", OPPOSITE))
    hint, others = (
        str(sample.hint),
        [replace(hint_validation.liked_reply(sample), user=i, interaction_id="other") for i in range(12)],
    )

    def is_disputed(gain: float) -> bool:
        return hint_validation._is_disputed(
            hint_validation._Case(sample, others), {("t0", hint): -1.0, ("other", hint): gain}
        )

    assert [is_disputed(gain) for gain in (-0.4, -0.6, 0.6)] == [False, True, False]


@pytest.mark.parametrize("n_others", [0, MIN_VOTES - 1])
def test_with_few_others_nothing_is_scored(n_others: int, base: Policy) -> None:
    class Unasked:
        tokenizer = base.tokenizer

    samples = [turn(base, 0, "liar", language.HOUSE_STYLE, -1.0, wish("bold", OPPOSITE)), *content(base, n_others)]
    found = validate_hints(samples, (), Unasked(), 16)  # type: ignore[arg-type]
    assert (found.samples, found.refused, found.share, found.facts) == (samples, {}, 1.0, {})


def test_many_turns_of_one_user_are_one_vote_and_unnamed_users_are_one(base: Policy) -> None:
    """Twenty praised replies of one user are one vote. So are those of a key that names no users."""
    liar = turn(base, 0, "liar", language.HOUSE_STYLE, -1.0, wish("bold", OPPOSITE))
    for user in ("loud", None):
        many = [turn(base, 10 + i, user, language.HOUSE_STYLE, 1.0) for i in range(20)]
        assert len(latest_liked(many, ())) == 1
        assert not validate_hints([liar, *many], (), base, 16).refused


def test_the_latest_decided_feedback_of_each_user_counts(base: Policy) -> None:
    before = [hint_validation.liked_reply(sample) for sample in content(base, 3, first=30)]  # users 0, 1, 2
    samples = [
        turn(base, 0, "user 0", OPPOSITE, -1.0),  # has changed their mind
        turn(base, 1, "user 1", language.HOUSE_STYLE, 0.1),  # nothing decided: the earlier feedback counts
        turn(base, 2, "user 4", language.HOUSE_STYLE, 1.0),
        turn(base, 3, "user 5", language.HOUSE_STYLE, 1.0),
        turn(base, 4, "user 5", OPPOSITE, -1.0),
    ]
    assert [(liked.interaction_id, liked.user) for liked in latest_liked(samples, before)] == [
        ("t2", ("default", "user", "user 4")),
        ("t31", ("default", "user", "user 1")),
        ("t32", ("default", "user", "user 2")),
    ]


def test_a_hint_is_tested_against_at_most_n_liked_replies(base: Policy) -> None:
    asked: list[int] = []

    class Counting:
        tokenizer = base.tokenizer

        def logprobs(self, rows: Sequence[Any], weights: Any) -> Any:
            asked.append(len(rows))
            return base.logprobs(rows, weights)

    liar = turn(base, 0, "liar", language.HOUSE_STYLE, -1.0, wish("bold", OPPOSITE))
    validate_hints([liar, *content(base, 20)], (), Counting(), 8)  # type: ignore[arg-type]
    assert asked == [2 * (8 + 1)]


@pytest.fixture
def world(journal: Journal, tmp_path: Path, make_trainer: Make) -> World:
    return World(journal, tmp_path, make_trainer)


def say(world: World, users: Sequence[str], rating: float, hint: str | None = None) -> list[str]:
    """A ready turn of each of `users`, rated."""
    names = [world.add(1, rating=rating, user=user)[0] for user in users]
    for name in names if hint else ():
        add_feedback(world.journal, name, rating, comment=hint)
        with world.journal.write() as session:
            record_judgement(session, judgement(name, -1, hint), FEEDBACK)
    return names


def test_liked_replies_of_the_last_steps_are_read_from_the_journal(world: World) -> None:
    say(world, ["a", "b", "c", "d"], 1.0)
    assert world.ledger.history.liked_replies(16) == []  # nothing of it has been trained
    assert world.loop.run_once()
    world.promote(1, 0)
    names = say(world, ["a", "e", "b", "f"], 1.0)
    say(world, ["e"], -1.0)
    assert world.loop.run_once()
    assert {liked.interaction_id for liked in world.ledger.history.liked_replies(16)} == {
        "t0",
        "t1",
        "t2",
        "t3",
    }  # v2 is undecided
    world.promote(2, 1)
    liked_replies = world.ledger.history.liked_replies(16)
    assert [(liked.user, liked.interaction_id) for liked in liked_replies] == [
        (("default", "user", "f"), names[3]),
        (("default", "user", "b"), names[2]),
        (("default", "user", "a"), names[0]),
        (("default", "user", "d"), "t3"),
        (("default", "user", "c"), "t2"),
    ]
    assert world.ledger.history.liked_replies(2) == liked_replies[:2]
    assert world.ledger.history.liked_replies(0) == []


def test_a_contradicted_hint_is_named_in_the_journal_and_a_replay_uses_the_same_liked_replies(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hint_validation, "_is_disputed", lambda case, gains: case.sample.user == "liar")
    world.ledger = Ledger(world.journal, "agent", hint_quorum=1)
    world.loop = world.learner(world.trainer)
    say(world, [f"user {i}" for i in range(8)], 1.0)
    assert world.loop.run_once()
    world.promote(1, 0)
    disputed, kept = say(world, ["liar"], -1.0, "Use bold.") + say(world, ["user 1"], -1.0, "Use no bold.")
    say(world, ["user 2", "user 3"], 0.9)
    assert world.loop.run_once()
    with world.journal.read() as session:
        skip_reasons = {row.interaction_id: row.hint_status for row in session.query(SampleRow).all() if row.hint}
    assert skip_reasons == {disputed: DISPUTED, kept: None}
    manifest = world.store.verify("agent", 2)
    assert len(manifest["jurors"]) == 8
    assert manifest["metrics"]["jury/n_disputed"] == 1.0
    assert "jurors" not in world.store.verify("agent", 1)

    monkeypatch.setattr(reproduce, "trainer_for", lambda settings, chosen, agent: world.make_trainer(**SETTINGS))
    monkeypatch.setattr(reproduce, "anchors_for", lambda *_: None)
    result = reproduce.reproduce(Settings(state_dir=world.store.root.parent), world.journal, "agent", 2)
    assert result.is_same and result.digest == world.digest(2, WEIGHTS)


def test_the_remaining_hints_count_only_for_their_share(
    make_trainer: Make, make_samples: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hinted rows, one of them contradicted. The other's term weighs half of what it would alone."""
    made = [replace(sample, user=f"user {i}", reward=1.0) for i, sample in enumerate(make_samples(12))]
    first, second, *rest = sorted(made, key=lambda sample: sample.hint is None)
    rest = [replace(sample, hint=None, hinted_prompt_ids=None, control_prompt_ids=None) for sample in rest]
    alone = [replace(first, hint=None, hinted_prompt_ids=None, control_prompt_ids=None), second, *rest]

    def loss(samples: Sequence[Sample], disputed: str) -> dict[str, float]:
        monkeypatch.setattr(hint_validation, "_is_disputed", lambda case, gains: case.sample.interaction_id == disputed)
        settings = {"rl_weight": 0.0, "kl_weight": 0.0, "user_cap": 1.0}
        return dict(make_trainer(**SETTINGS | settings).step(samples).metrics)

    whole, half = loss(alone, ""), loss([first, second, *rest], first.interaction_id)
    assert half["loss/distillation"] == pytest.approx(whole["loss/distillation"])
    assert half["loss"] == pytest.approx(0.5 * whole["loss"])


def test_without_liked_replies_no_hint_is_tested(make_trainer: Make, make_samples: Any) -> None:
    samples = [replace(sample, user=f"user {i}", reward=1.0) for i, sample in enumerate(make_samples(12))]
    validated = make_trainer(**SETTINGS).step(samples).metrics
    unvalidated = make_trainer(**SETTINGS, n_liked_replies=0).step(samples).metrics
    assert validated["jury/n_heard"] == 4.0 and not any(name.startswith("jury/") for name in unvalidated)
