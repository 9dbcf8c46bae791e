"""Groups that people's ratings of other replies will score: which turns get one, and how it is drawn."""

import math
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from shadow_world import ShadowWorld

from burnish import serving_table
from burnish.adapters.registry import lifecycle
from burnish.adapters.serving.prepare import routes_file
from burnish.journal.tables import SampleRow, StepRow
from burnish.records import Sampling, StepOutcome
from burnish.rewards import MIN_RATINGS
from burnish.server.rollout.shadow_groups import picker
from burnish.server.rollout.shadow_groups.drawer import SPARE_TOKENS, VARIED
from burnish.serving_table import Routes
from burnish.testing import StubEngine
from burnish.testing.stub_reply import Scripted
from tests.turns import add_feedback


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ShadowWorld]:
    with StubEngine(api_key="k", replies=["one", "two", "three"]) as engine:
        made = ShadowWorld(tmp_path, engine, grader="ratings")
        yield made
        await made.source.close()


def rate(world: ShadowWorld, n_praised: int, n_disliked: int, source: str = "user", version: int = 1) -> list[str]:
    """A step that has learned from so many ratings of turns that get no group: they were cut off."""
    ratings = [1.0] * n_praised + [-1.0] * n_disliked
    names = [world.turn(finish_reason="length") for _ in ratings]
    with world.journal.write() as session:
        step = StepRow(
            agent="agent", version=version, parent=0, outcome=StepOutcome.PUBLISHED, metrics={}, started_at=0.0
        )
        session.add(step)
        session.flush()
        for name, reward in zip(names, ratings, strict=True):
            facts = {"reward": reward, "reward_source": source, "record_ids": []}
            session.add(SampleRow(step_id=step.step_id, interaction_id=name, **facts))
    return names


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0.0), Sampling(temperature=0.2, top_p=0.9), Sampling(temperature=1.2)]
)
async def test_a_turn_gets_a_group_without_a_hint_and_however_it_was_sampled(
    world: ShadowWorld, sampling: Sampling
) -> None:
    rate(world, MIN_RATINGS, MIN_RATINGS)
    name = world.turn(hint=None, sampling=sampling)
    assert await world.drawer.run_once()

    found = world.group(name)
    assert found is not None and (found.state, found.wish, found.record_id) == ("drawn", "", None)
    n_drawn = world.settings.recipe.group_size
    assert world.n_to_score == 0 and len(world.shadows(name)) == n_drawn
    assert [body["temperature"] for body in world.engine.requests] == [VARIED] * n_drawn


@pytest.mark.parametrize("sampling", [Sampling(is_constrained=True), Sampling(has_logit_bias=True)])
async def test_a_grammar_or_a_bias_excludes_a_turn(world: ShadowWorld, sampling: Sampling) -> None:
    rate(world, MIN_RATINGS, MIN_RATINGS)
    world.turn(hint=None, sampling=sampling)
    assert not await world.drawer.run_once()


@pytest.mark.parametrize(
    ("counts", "source"),
    [
        ((MIN_RATINGS - 1, 40), "user"),
        ((40, MIN_RATINGS - 1), "user"),
        ((MIN_RATINGS, MIN_RATINGS), "judge"),
    ],
)
async def test_nothing_is_drawn_before_there_are_enough_ratings(
    world: ShadowWorld, counts: tuple[int, int], source: str
) -> None:
    rate(world, *counts, source)
    world.turn()
    assert not await world.drawer.run_once()
    assert world.engine.requests == []


@pytest.mark.parametrize("n_again", [0, MIN_RATINGS])
async def test_groups_stop_while_next_to_nothing_pleases(world: ShadowWorld, n_again: int) -> None:
    """Words teach faster then. What pleased long ago, or a reply that a user wrote, says nothing of the agent now."""
    rate(world, 40, 0)
    for name in rate(world, MIN_RATINGS - 1, 30, version=2):
        add_feedback(world.journal, name, None, demonstration="a good one")
    rate(world, n_again, 0, version=3)
    name = world.turn(hint=None)
    assert await world.drawer.run_once() == (n_again > 0)
    assert (world.group(name) is not None) == (n_again > 0)


async def test_the_live_version_replies_to_the_prompts_of_others(world: ShadowWorld) -> None:
    """A step learns from no other version. The turn's own reply is no member."""
    rate(world, MIN_RATINGS, MIN_RATINGS)
    name = world.turn(hint=None, version=7)  # it is not loaded any more
    assert await world.drawer.run_once()
    found = world.group(name)
    assert found is not None and (found.state, found.version) == ("drawn", 0)
    assert len(world.shadows(name)) == found.n_members == world.settings.recipe.group_size


async def test_a_turn_of_long_ago_gets_a_group(world: ShadowWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its prompt is as good as any. Users may talk once a day. Only the agent's latest turns are looked through."""
    name = world.turn(hint=None, ended_at=1000.0)
    rate(world, MIN_RATINGS, MIN_RATINGS)
    with monkeypatch.context() as small:
        small.setattr(picker, "LATEST", 2 * MIN_RATINGS)
        assert not await world.drawer.run_once() and world.group(name) is None
    world.drawer._picked_at = -math.inf
    assert await world.drawer.run_once()
    assert (found := world.group(name)) is not None and found.state == "drawn"


async def test_other_graders_take_what_is_loaded(tmp_path: Path) -> None:
    """The version that answered draws, also if it is not live."""

    def load(routes: Routes) -> Routes:
        return replace(routes, agents={name: replace(each, loaded=(1,)) for name, each in routes.agents.items()})

    with StubEngine(api_key="k", replies=["one", "two", "three"]) as engine:
        world = ShadowWorld(tmp_path, engine, grader="likelihood")
        serving_table.update(routes_file(world.settings), load)
        name = world.turn(version=1)
        await world.drawer.run_once()
        found = world.group(name)
        assert found is not None and found.version == 1
        await world.source.close()


@pytest.mark.parametrize("what", ["step", "version"])
async def test_no_group_begins_while_the_agent_changes(world: ShadowWorld, what: str) -> None:
    """It would be by a version that is not live any more when a step could learn from it."""
    rate(world, MIN_RATINGS, MIN_RATINGS)
    with world.journal.write() as session:
        if what == "step":
            session.add(
                StepRow(agent="agent", version=2, parent=0, outcome=StepOutcome.OPEN, metrics={}, started_at=0.0)
            )
        else:
            lifecycle.announce(session, "agent", 2, parent=0, step_id=None, digest="d")
    name = world.turn(hint=None)
    assert not await world.drawer.run_once() and world.group(name) is None

    with world.journal.write() as session:
        if what == "step":
            session.query(StepRow).filter_by(version=2).one().outcome = StepOutcome.EMPTY
        else:
            lifecycle.refuse(session, "agent", 2, reason="no", evidence={})
    world.drawer._picked_at = -math.inf
    assert await world.drawer.run_once() and world.group(name) is not None


async def test_a_refused_step_counts_its_ratings_once(world: ShadowWorld) -> None:
    """Its rows are in the next step as well."""
    names = rate(world, MIN_RATINGS // 2, MIN_RATINGS)
    with world.journal.write() as session:
        step = StepRow(agent="agent", version=2, parent=0, outcome=StepOutcome.PUBLISHED, metrics={}, started_at=1.0)
        session.add(step)
        session.flush()
        for name in names[: MIN_RATINGS // 2]:
            facts = {"reward": 1.0, "reward_source": "user", "record_ids": []}
            session.add(SampleRow(step_id=step.step_id, interaction_id=name, **facts))
    world.turn(hint=None)
    assert not await world.drawer.run_once()


async def test_a_reply_that_was_cut_off_stays_in_its_group(world: ShadowWorld) -> None:
    """The rater sees that it is long. It may be longer than the live reply, but not by much."""
    rate(world, MIN_RATINGS, MIN_RATINGS)
    name = world.turn(hint=None)
    world.engine.replies = lambda body, choice: "x" * 400
    assert await world.drawer.run_once()

    found = world.group(name)
    assert found is not None and found.state == "drawn"
    assert {each.finish_reason for each in world.shadows(name)} == {"length"}
    (n_most,) = {body["max_tokens"] for body in world.engine.requests}
    assert SPARE_TOKENS < n_most < 2 * SPARE_TOKENS


async def test_a_tool_call_drops_the_group_even_if_it_was_cut_off(world: ShadowWorld) -> None:
    rate(world, MIN_RATINGS, MIN_RATINGS)
    name = world.turn(hint=None)
    world.engine.replies = [Scripted(tool_calls=[("look", '{"at": "a place with a very long name"}')])]
    assert await world.drawer.run_once()

    found = world.group(name)
    assert found is not None and found.state == "dropped" and str(found.reason).startswith("a tool call")


async def test_no_more_groups_are_begun_than_a_step_takes(world: ShadowWorld) -> None:
    """Those that were drawn or scored count as well."""
    rate(world, MIN_RATINGS, MIN_RATINGS)
    most = world.settings.recipe.max_groups
    names = [world.turn(hint=None) for _ in range(most + 2)]
    while await world.drawer.run_once():
        world.drawer._picked_at = -math.inf
    assert [world.group(name) is not None for name in names] == [False] * 2 + [True] * most
