"""The full tier: a candidate is compared with the live version on held-out turns and waits for their verdicts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from swap_world import PROMPTS, World

from burnish.adapters.evidence.base_answers import N_BASE_ANSWERS
from burnish.adapters.evidence.heldout_replay import Rules
from burnish.adapters.registry.lineage import lineage
from burnish.config import Journal
from burnish.errors import EngineError, EngineUnavailable
from burnish.journal.tables import BlobRow, CompareJob, ComparisonRow
from burnish.server.rollout.base_predictions import Predictions
from burnish.server.rollout.forgetting_prompts import RetentionSet
from burnish.server.rollout.heldout_replay import Replayer
from tests.factories import interaction, user
from tests.turns import add_turn


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose swapper asks 64 held-out turns.

    Every session is held out, so the row behind a version counts too.
    """
    monkeypatch.chdir(tmp_path)
    world = World(tmp_path / "state")
    world.swapper._replayer = replayer(world)
    return world


def replayer(world: World, tier: str = "full", judge_model: str = "", **rules: Any) -> Replayer:
    gate = world.settings.gate.model_copy(update={"tier": tier, "holdout": 0.999999})
    judge_ = world.settings.judge.model_copy(update={"model": judge_model})
    chosen = world.settings.model_copy(update={"gate": gate, "judge": judge_})
    return Replayer(world.journal, world.engine, lambda agent: chosen, rules=Rules(n_turns=80, **rules))


def talk(world: World, n: int, **changes: Any) -> None:
    for number in range(n):
        add_turn(world.journal, interaction([user(f"held {number}")], interaction_id=f"held-{number}", **changes))


def judge(world: World, *outcomes: int) -> None:
    """Add a judge's verdicts on the pairs that wait, pair by pair."""
    with world.journal.write() as session:
        for number, row in enumerate(session.query(ComparisonRow).filter_by(outcome=None).all()):
            row.outcome = outcomes[number % len(outcomes)]


def otherwise(model: str, text: str) -> str:
    """The candidate answers held-out turns with other words, and forgetting prompts as before."""
    return "another answer" if model == "agent@v1" and text.startswith("held") else "ok"


async def again(world: World) -> None:
    world.make_due()
    await world.swapper.run_once()


async def test_without_held_out_turns_a_candidate_waits(full: World) -> None:
    talk(full, 62)
    full.announce(1)
    await full.swapper.run_once()
    assert (full.live(), full.version(1).state) == (0, "candidate")
    assert "63 held-out turns, 64 needed" in (full.job("agent@v1").error or "")
    add_turn(full.journal, interaction([user("held one more")], interaction_id="one-more"))
    await again(full)
    assert full.live() == 1  # the same replies as the base's, so a judge has nothing to compare


async def test_replies_are_kept_as_the_agents_turns_are(full: World) -> None:
    full.settings = full.settings.model_copy(update={"journal": Journal(redact=("agent",))})
    full.swapper._replayer = replayer(full)
    full.engine.replies = lambda model, text: "mail ann@example.org" if text.startswith("held") else "ok"
    talk(full, 70)
    full.announce(1)
    await full.swapper.run_once()
    with full.journal.read() as session:
        bodies = list(session.scalars(select(BlobRow.body)))
    assert any("mail [email]" in body for body in bodies) and not any("ann@" in body for body in bodies)


async def test_the_same_replies_need_no_judge(full: World) -> None:
    talk(full, 70)
    full.announce(1)
    await full.swapper.run_once()
    assert full.live() == 1
    with full.journal.read() as session:
        assert session.query(CompareJob).count() == 0
    assert full.version(1).evidence["replay"]["n"] == 71


@pytest.mark.parametrize(("outcomes", "live"), [((1, 1, 0, -1), 1), ((0, -1), 0)])
async def test_pairs_decide_once_the_judge_has_spoken(full: World, outcomes: tuple[int, ...], live: int) -> None:
    talk(full, 200)
    full.engine.replies = otherwise
    full.announce(1)
    await full.swapper.run_once()
    assert full.live() == 0 and "79 of 80 held-out pairs wait for the judge" in (full.job("agent@v1").error or "")
    n_probed = full.engine.n_calls("next_logprobs")
    await again(full)
    assert full.engine.n_calls("next_logprobs") == n_probed  # it is not tried again while it waits
    judge(full, *outcomes)
    await again(full)
    assert full.live() == live
    evidence = full.version(1).evidence["replay"]
    assert (evidence["n"], evidence["n_decided"]) == (80, 80)
    assert full.outcome(1) == (("published", True) if live else ("refused", True))
    if not live:
        assert "held-out pairs" in full.version(1).reason and full.engine.loaded == {}


async def test_calls_that_the_parser_left_in_the_text_are_broken_ones(full: World) -> None:
    talk(full, 80, tools=[{"type": "function", "function": {"name": "add"}}])
    full.engine.replies = lambda model, text: '<tool_call>{"name": add}' if otherwise(model, text) != "ok" else "ok"
    full.announce(1)
    await full.swapper.run_once()
    judge(full, 1)
    await again(full)
    assert (full.live(), full.version(1).state) == (0, "refused")
    assert full.version(1).evidence["replay"]["candidate"]["n_broken"] == 79
    assert "tool calls" in full.version(1).reason


async def test_a_judge_that_never_speaks_lets_nothing_through(full: World) -> None:
    full.swapper._replayer = replayer(full, judge_seconds=0.0)
    talk(full, 80)
    full.engine.replies = otherwise
    full.announce(1)
    await full.swapper.run_once()
    assert (full.live(), full.version(1).state) == (0, "refused")
    assert "insufficient evidence" in full.version(1).reason


async def test_a_restart_begins_nothing_anew(full: World) -> None:
    talk(full, 80)
    full.engine.replies = otherwise
    full.announce(1)
    await full.swapper.run_once()
    replayer, n_asked = full.swapper._replayer, full.engine.n_calls("chat")
    full.restarted()._replayer = replayer
    judge(full, 1, 0)
    await again(full)
    assert full.live() == 1
    # the forgetting prompts again, the held-out turns not
    assert full.engine.n_calls("chat") == n_asked + (N_BASE_ANSWERS + 1) * 64


async def test_turns_that_say_nothing_are_not_put(full: World) -> None:
    talk(full, 40)
    for number, odd in enumerate(
        ({"may_train": False}, {"is_aborted": True}, {"finish_reason": "length"}, {"agent": "other"})
    ):
        for i in range(20):
            add_turn(full.journal, interaction([user("x")], interaction_id=f"odd-{number}-{i}", **odd))
    full.announce(1)
    await full.swapper.run_once()
    assert "41 held-out turns" in (full.job("agent@v1").error or "")


def too_long(first: int) -> Callable[[str, str], str]:
    """An engine that refuses held-out turns from number `first` on as too long.

    vLLM counts prompt and reply together.
    """

    def reply(model: str, text: str) -> str:
        if text.startswith("held") and int(text.split()[1]) >= first:
            raise EngineError(
                "POST /v1/chat/completions: the engine answered 400: maximum context length is 2048 tokens"
            )
        return "ok"

    return reply


async def test_turns_that_the_engine_refuses_are_counted_and_the_swapper_goes_on(full: World) -> None:
    talk(full, 79)
    full.engine.replies = too_long(70)
    full.announce(1)
    assert await full.swapper.run_once()
    assert full.live() == 1
    evidence = full.version(1).evidence["replay"]
    assert (evidence["n"], evidence["n_decided"], evidence["n_unasked"]) == (71, 71, 9)
    with full.journal.read() as session:
        assert lineage(session, "agent", 1)["comparisons"] == {"tied": 71, "unasked": 9}
        assert session.query(CompareJob).count() == 0


@pytest.mark.parametrize("first", [0, 40])
async def test_where_most_turns_are_refused_the_candidate_is_and_the_next_one_is_tried(full: World, first: int) -> None:
    talk(full, 79)
    full.engine.replies = too_long(first)
    full.announce(1)
    assert await full.swapper.run_once()
    assert (full.live(), full.version(1).state, full.outcome(1)) == (0, "refused", ("refused", True))
    told = f"the engine refused {79 - first} of 80 held-out turns"
    assert full.version(1).reason.startswith("insufficient evidence") and told in full.version(1).reason
    assert full.version(1).evidence["replay"]["n_unasked"] == 79 - first
    full.engine.replies = lambda model, text: "ok"
    full.announce(2)
    assert await full.swapper.run_once()
    assert full.live() == 2


async def test_refused_turns_are_not_asked_again(full: World) -> None:
    talk(full, 79)
    full.engine.replies = lambda model, text: otherwise(model, too_long(70)(model, text) and text)
    full.announce(1)
    await full.swapper.run_once()
    assert "70 of 80 held-out pairs wait for the judge" in (full.job("agent@v1").error or "")
    n_asked = full.engine.n_calls("chat")
    judge_all_but_unasked(full)
    await again(full)
    assert full.live() == 1
    assert full.engine.n_calls("chat") == n_asked
    assert full.version(1).evidence["replay"]["n_unasked"] == 9


def judge_all_but_unasked(world: World) -> None:
    with world.journal.write() as session:
        for row in session.query(ComparisonRow).filter_by(outcome=None, reason=None).all():
            row.outcome = 1


async def test_an_engine_that_loses_the_candidate_while_it_waits_gets_it_back(full: World) -> None:
    talk(full, 80)
    full.engine.replies = otherwise
    full.announce(1)
    await full.swapper.run_once()
    full.engine.loaded.clear()
    judge(full, 1, 0)
    await again(full)
    assert full.live() == 1 and "agent@v1" in full.engine.loaded


async def test_an_engine_that_loses_the_candidate_while_it_answers_says_nothing_of_it(full: World) -> None:
    talk(full, 80)

    def restarts(model: str, text: str) -> str:
        if text == "held 60":
            full.engine.loaded.clear()
        return "ok"

    full.engine.replies = restarts
    full.announce(1)
    with pytest.raises(EngineUnavailable, match="has lost agent@v1"):
        await full.swapper.run_once()
    with full.journal.read() as session:
        assert session.query(ComparisonRow).count() == 0
    full.engine.replies = lambda model, text: "ok"
    await again(full)
    assert full.live() == 1
    assert full.version(1).evidence["replay"]["n_unasked"] == 0


@pytest.mark.parametrize(
    ("judge_model", "n_turns", "said"),
    [
        ("", 70, "held-out replay: judge.model is not set"),
        ("openai/gpt-5", 20, "held-out replay: 21 held-out turns so far, 64 needed"),
    ],
)
async def test_in_the_tier_auto_no_version_waits_for_held_out_turns(
    full: World, judge_model: str, n_turns: int, said: str
) -> None:
    full.swapper._replayer = replayer(full, "auto", judge_model)
    talk(full, n_turns)
    await full.publish(1)
    assert any(said in reason for reason in full.version(1).evidence["left_out"])


async def test_all_that_was_left_out_is_told_together(full: World) -> None:
    full.swapper._replayer = replayer(full, "auto", "")
    full.swapper._trial._retention = RetentionSet(PROMPTS, fallback=Predictions(PROMPTS))
    full.engine.replies = lambda model, text: "nonsense"
    await full.publish(1)
    evidence = full.version(1).evidence
    assert (evidence["retention"]["measure"], evidence["retention"]["n"]) == ("predictions", 64)
    answers, replay = evidence["left_out"]
    assert answers.startswith("answers to forgetting prompts: the base passes only 0 of 64 forgetting prompts")
    assert replay == "held-out replay: judge.model is not set, and the base compares no replies"


async def test_in_the_tier_auto_held_out_turns_count_as_soon_as_there_are_enough(full: World) -> None:
    full.swapper._replayer = replayer(full, "auto", "openai/gpt-5")
    talk(full, 70)
    await full.publish(1)
    assert full.version(1).evidence["replay"]["n"] == 71
    assert "left_out" not in full.version(1).evidence


async def test_a_slice_that_may_have_fallen_gets_further_turns_and_the_version_is_refused_for_it(full: World) -> None:
    """Even overall, and worse in one of two routes: 160 held-out turns, of which the first round asks 80."""
    for number in range(160):
        route, at = ("chat", "messages")[number % 2], 1000.0 + number
        name = f"{route}-{number // 2}"
        said = interaction([user(f"held {name}")], interaction_id=name, started_at=at, ended_at=at)
        add_turn(full.journal, said, route=route)
    full.engine.replies = otherwise
    full.announce(1)
    await full.swapper.run_once()
    n_rounds, n_asked = 0, [0]
    while full.version(1).state == "candidate":
        with full.journal.write() as session:
            for row in session.query(ComparisonRow).filter_by(outcome=None).all():
                route, _, n = row.interaction_id.rpartition("-")
                row.outcome = 0 if int(n) % 7 else -1 if route == "messages" else 1
            n_asked.append(session.query(ComparisonRow).count())
        await again(full)
        n_rounds += 1
        assert n_rounds < 10
    assert full.live() == 0
    assert full.version(1).reason.startswith("fell in the slice 'route: messages': lost ")
    slices = full.version(1).evidence["slices"]
    assert slices["worst"] == "route: messages" and slices["by_slice"][0]["state"] == "fallen"
    assert slices["by_slice"][0]["lost"][0].startswith("messages-")
    assert full.version(1).evidence["replay"]["n"] == 80  # further rounds count for slices alone
    assert n_asked[-1] > 80
