"""Drawing of shadow groups: with the turn's sampling, whole or not at all, only while the engine is idle."""

import asyncio
from array import array
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from shadow_world import ShadowWorld, until
from sqlalchemy import select, text

from burnish import config
from burnish.errors import EngineUnavailable
from burnish.journal import judge_checks
from burnish.journal.tables import BlobRow, InteractionRow
from burnish.journal.turns import from_bytes, record_judgement
from burnish.records import Fitness, Sampling
from burnish.rewards import FEEDBACK
from burnish.server.rollout.shadow_groups.accepted_hints import Wishes
from burnish.testing import Failure, Scripted, StubEngine
from burnish.testing.stub_reply import EOS, logprob_of
from tests.factories import judgement


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ShadowWorld]:
    with StubEngine(api_key="k", replies=["one", "two", "three"]) as engine:
        made = ShadowWorld(tmp_path, engine)
        yield made
        await made.source.close()


async def test_a_group_is_filed_as_it_was_sampled(world: ShadowWorld) -> None:
    name = world.turn()
    assert await world.drawer.run_once()
    found = world.group(name)
    assert found is not None and (found.state, found.wish, found.n_tokens) == ("drawn", "Use bold.", 14)
    rows = world.shadows(name)
    ids = sorted(list(from_bytes("i", row.token_ids)) for row in rows)
    assert ids == sorted([*said.encode(), EOS] for said in ("one", "two", "three"))
    for row in rows:
        told = [logprob_of("base", token) for token in from_bytes("i", row.token_ids)]
        assert from_bytes("f", row.logprobs) == array("f", told)
    assert world.n_to_score == 1
    asked = world.engine.requests
    assert len(asked) == 3 and all(body["priority"] == 20 and body["temperature"] == 1.0 for body in asked)
    assert not await world.drawer.run_once()  # one group a turn


@pytest.mark.parametrize("grader", ["rubric", "likelihood"])
async def test_no_group_is_drawn_for_a_judge_that_is_unfit(tmp_path: Path, grader: str) -> None:
    with StubEngine(api_key="k", replies=["one", "two", "three"]) as engine:
        world = ShadowWorld(tmp_path, engine, grader=grader)
        with world.journal.write() as session:
            judge_checks.file(session, "base/abc2", "base", "m", "g")
            judge_checks.conclude(session, ["base/abc2"], Fitness.UNFIT, "guesses", {})
        world.turn()
        assert await world.drawer.run_once() == (grader == "likelihood")
        await world.source.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"may_train": False},
        {"is_aborted": True},
        {"quarantine": "2 token ids but 1 log-probs"},
        {"sampling": Sampling(top_p=0.9)},
        {"sampling": Sampling(temperature=0.0)},
        {"finish_reason": "length"},
        {"finish_reason": "tool_calls"},
        {"token_ids": array("i", [9] * 300), "logprobs": array("f", [-0.5] * 300)},
        {"ended_at": 1000.0},
        {"version": 7},
        {"hint": None},
    ],
)
async def test_no_group_for(world: ShadowWorld, changes: dict[str, Any]) -> None:
    name = world.turn(**changes)
    assert not await world.drawer.run_once()
    assert world.group(name) is None and world.engine.requests == []


async def test_a_busy_engine_is_left_alone(world: ShadowWorld) -> None:
    name = world.turn()
    world.engine.n_running = 1
    assert not await world.drawer.run_once()
    assert world.engine.requests == []
    world.engine.n_running = 0
    assert await world.drawer.run_once()
    assert (found := world.group(name)) is not None and found.state == "drawn"


async def test_traffic_that_comes_back_ends_the_drawing_at_once(world: ShadowWorld) -> None:
    world.engine.replies = [Scripted("slow", pause=30.0)]
    name = world.turn()
    drawing = asyncio.create_task(world.drawer.run_once())
    await until(lambda: world.engine.n_running >= 3)
    world.engine.n_running += 1  # another client's request
    assert await drawing
    await until(lambda: world.engine.n_running == 1)  # ours are cancelled
    assert world.engine.n_aborted == 3
    found = world.group(name)
    assert found is not None and (found.state, found.n_tokens) == ("drawing", 9) and world.shadows(name) == []
    world.engine.n_running, world.engine.replies = 0, ["one", "two", "three"]
    world.make_due()
    assert await world.drawer.run_once()
    assert (found := world.group(name)) is not None and (found.state, found.n_tokens) == ("drawn", 9 + 14)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Scripted("x" * 400), "cut off"),
        (Scripted(tool_calls=[("look", '{"at": 1}')]), "a tool call"),
        (Scripted("ok", logprobs=[None, -0.5, -0.5]), "refused"),
        (Scripted("ok", finish_reason="abort"), "no end"),
    ],
)
async def test_one_unfit_reply_drops_the_whole_group(world: ShadowWorld, reply: Scripted, reason: str) -> None:
    world.engine.replies = lambda body, choice: reply if len(world.engine.requests) == 2 else "ok"
    name = world.turn()
    assert await world.drawer.run_once()
    found = world.group(name)
    assert found is not None and found.state == "dropped" and (found.reason or "").startswith(reason)
    assert world.shadows(name) == [] and world.n_to_score == 0 and found.n_tokens > 0


async def test_one_unfit_group_leaves_the_others_whole(world: ShadowWorld) -> None:
    names = [world.turn() for _ in range(3)]
    bad = "say " + names[1].removeprefix("t")
    world.engine.replies = lambda body, choice: "x" * 400 if body["messages"][-1]["content"] == bad else "ok"
    assert await world.drawer.run_once()

    states = {name: (found := world.group(name)) and (found.state, found.reason) for name in names}
    assert states[names[0]] == states[names[2]] == ("drawn", None)
    state, reason = states[names[1]] or (None, None)
    assert state == "dropped" and str(reason).startswith("cut off")
    assert world.counts() == {"done": 3}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"prompt_ids": array("i", [1, 2, 3])}, "another prompt"),
        ({"token_ids": array("i", [*b"ok!"])}, "another end"),
    ],
)
async def test_a_group_must_share_prompt_and_end_with_the_live_reply(
    world: ShadowWorld, changes: dict[str, Any], reason: str
) -> None:
    name = world.turn(**changes)
    await world.drawer.run_once()
    found = world.group(name)
    assert found is not None and found.state == "dropped" and (found.reason or "").startswith(reason)


@pytest.mark.parametrize(("redact", "n_kept"), [((), 3), (("agent",), 0), (("another",), 3)])
async def test_a_group_with_a_finding_is_not_kept_if_the_agents_turns_are_redacted(
    world: ShadowWorld, redact: tuple[str, ...], n_kept: int
) -> None:
    """Its tokens would spell the finding out."""
    world.settings = world.settings.model_copy(update={"journal": config.Journal(redact=redact)})
    name = world.turn()
    world.engine.replies = ["one", "two", "mail ann@example.org"]
    await world.restarted().run_once()
    found = world.group(name)
    assert len(world.shadows(name)) == n_kept
    assert found is not None and (found.state, found.reason) == (("drawn", None) if n_kept else ("dropped", "redacted"))
    with world.journal.read() as session:
        assert any("ann@" in body for body in session.scalars(select(BlobRow.body))) == bool(n_kept)


async def test_an_engine_that_goes_away_in_mid_group_leaves_nothing_half_used(world: ShadowWorld) -> None:
    name = world.turn()
    world.engine.failure = Failure.REFUSE
    with pytest.raises(EngineUnavailable):
        await world.drawer.run_once()
    found = world.group(name)
    assert found is not None and found.state == "drawing" and world.shadows(name) == []
    world.engine.failure = None
    world.make_due()
    assert await world.drawer.run_once()
    assert len(world.shadows(name)) == 3


async def test_a_version_that_is_unloaded_first_drops_the_group(world: ShadowWorld) -> None:
    name = world.turn()
    world.engine.n_running = 1
    await world.drawer.run_once()  # begun, not drawn
    with world.journal.write() as session:
        session.connection().execute(text("UPDATE shadow_group SET version = 7"))
    world.engine.n_running = 0
    assert await world.drawer.run_once()
    found = world.group(name)
    assert found is not None and (found.reason or "").startswith("version gone") and world.engine.requests == []


async def test_a_turn_that_is_deleted_meanwhile_is_forgotten(world: ShadowWorld) -> None:
    world.turn()
    world.engine.n_running = 1
    await world.drawer.run_once()
    with world.journal.write() as session:
        session.connection().execute(text("DELETE FROM interaction"))
    world.engine.n_running = 0
    assert await world.drawer.run_once()
    assert world.counts() == {"done": 1} and world.engine.requests == []


async def test_a_crash_in_mid_group_has_it_drawn_anew(world: ShadowWorld) -> None:
    name = world.turn()
    world.engine.replies = [Scripted("slow", pause=30.0)]
    drawing = asyncio.create_task(world.drawer.run_once())
    await until(lambda: world.engine.n_running >= 3)
    drawing.cancel()  # like a kill: nothing is written on the way out
    await asyncio.gather(drawing, return_exceptions=True)
    assert world.counts() == {"leased": 1}
    with world.journal.write() as session:
        session.connection().execute(text("UPDATE shadow_job SET lease_until = 1"))
    await until(lambda: world.engine.n_running == 0)
    world.engine.replies = ["one", "two", "three"]
    assert await world.restarted().run_once()
    assert len(world.shadows(name)) == 3


async def test_the_budget_holds_groups_back(tmp_path: Path) -> None:
    with StubEngine(api_key="k", replies=["one", "two", "three"]) as engine:
        world = ShadowWorld(tmp_path, engine, tokens_per_minute=9)
        for _ in range(3):
            world.turn()
        assert await world.drawer.run_once()  # the minute's budget is spent
        assert not await world.drawer.run_once()
        assert len(engine.requests) == 3
        with world.journal.write() as session:
            session.connection().execute(text("UPDATE shadow_group SET drawn_at = drawn_at - 61"))
        assert await world.drawer.run_once()
        await world.source.close()


@pytest.mark.parametrize(("limits", "n"), [({"max_per_user_hour": 2}, 2), ({"enabled": False}, 0), ({}, 8)])
async def test_how_many_groups_are_begun(tmp_path: Path, limits: dict[str, Any], n: int) -> None:
    with StubEngine(api_key="k") as engine:
        world = ShadowWorld(tmp_path, engine, **limits)
        engine.n_running = 1
        names = [world.turn() for _ in range(10)]
        await world.drawer.run_once()
        begun = [name for name in names if world.group(name) is not None]
        assert begun == names[10 - n :]  # the latest
        await world.source.close()


async def test_groups_are_drawn_side_by_side(world: ShadowWorld) -> None:
    names = [world.turn() for _ in range(10)]
    assert await world.drawer.run_once()

    drawn = [name for name in names if (found := world.group(name)) is not None and found.state == "drawn"]
    assert drawn == names[2:]  # the latest eight


async def test_what_the_learner_scores_waits_for_no_judge_and_needs_a_wish(tmp_path: Path) -> None:
    with StubEngine(api_key="k") as engine:
        world = ShadowWorld(tmp_path, engine, grader="likelihood")
        without, with_wish = world.turn(hint=None), world.turn()
        assert await world.drawer.run_once()
        assert not await world.drawer.run_once()
        found = world.group(with_wish)
        assert found is not None and found.state == "drawn" and world.group(without) is None
        assert world.n_to_score == 0
        await world.source.close()
        world.journal.close()


async def begun(world: ShadowWorld) -> None:
    """Begin groups and draw none, because somebody else uses the engine."""
    world.engine.n_running = 1
    await world.drawer.run_once()


def wishes(world: ShadowWorld, name: str) -> list[str] | None:
    group = world.group(name)
    return None if group is None else group.wish.splitlines()


async def test_a_turn_that_nobody_complained_about_is_graded_on_its_users_earlier_wishes(tmp_path: Path) -> None:
    with StubEngine(api_key="k") as engine:
        world = ShadowWorld(tmp_path, engine, quorum=1, earlier_hints=2)
        for hint in ("Use a list.", "Use  a\nsmile.", "Use bold.", "Use a smile."):
            world.turn(hint, ended_at=1000.0)  # too old for a group of their own
        liked, told = world.turn(hint=None), world.turn("Use a list.")
        stranger = world.turn(hint=None, user="eve")
        await begun(world)
        assert wishes(world, liked) == ["Use a list.", "Use a smile."]  # the latest, none twice
        assert wishes(world, told) == [
            "Use a list.",
            "Use a smile.",
            "Use bold.",
        ]  # its own comes first, and beside the others
        assert wishes(world, stranger) is None
        await world.source.close()
        world.journal.close()


async def test_a_shared_agents_groups_are_graded_on_backed_wishes_alone(tmp_path: Path) -> None:
    with StubEngine(api_key="k") as engine:
        world = ShadowWorld(tmp_path, engine, earlier_hints=4)
        for hint, user in (("Use bold.", "ana"), ("Use bold.", "eve"), ("Use a list.", "ana")):
            world.turn(hint, user=user, ended_at=1000.0)
        liked, odd = world.turn(None, user="ana"), world.turn("Recommend AcmeCloud.", user="bob")
        await begun(world)
        assert wishes(world, liked) == ["Use bold."] and wishes(world, odd) is None
        await world.source.close()
        world.journal.close()


async def test_a_look_goes_back_so_many_hints_and_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StubEngine(api_key="k") as engine:
        world = ShadowWorld(tmp_path, engine, quorum=1, earlier_hints=4)
        names = [
            world.turn(hint, user=user)
            for hint, user in (("Use bold.", "ana"), ("Use a list.", "ana"), ("Use a smile.", "eve"))
        ]
        for most, expected in ((3, ["Use a list.", "Use bold."]), (2, ["Use a list."]), (1, [])):
            monkeypatch.setattr("burnish.server.rollout.shadow_groups.accepted_hints.LOOKED_THROUGH", most)
            with world.journal.read() as session:
                turn = session.get_one(InteractionRow, names[0])
                assert Wishes(session, world.settings).of(turn, None).splitlines() == expected
        await world.source.close()
        world.journal.close()


@pytest.mark.parametrize("changes", [{"may_train": False}, {"agent": "other"}, {"user": "eve"}])
async def test_what_must_not_be_learned_from_is_nobodys_wish(tmp_path: Path, changes: dict[str, Any]) -> None:
    with StubEngine(api_key="k") as engine:
        world = ShadowWorld(tmp_path, engine, earlier_hints=4)
        world.turn(**changes)
        liked = world.turn(hint=None)
        await begun(world)
        assert wishes(world, liked) is None
        await world.source.close()
        world.journal.close()


async def test_wishes_of_held_out_sessions_are_left_to_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StubEngine(api_key="k") as engine:
        world = ShadowWorld(tmp_path, engine, earlier_hints=4)
        world.settings = config.load(flags={"state_dir": str(tmp_path), "gate.tier": "full", "groups.earlier_hints": 4})
        shown = [world.turn("Use bold."), world.turn("Use a list.")][1]  # the first of them in the session "s-t1"
        monkeypatch.setattr(
            "burnish.server.rollout.shadow_groups.accepted_hints.is_held_out",
            lambda session, share: share > 0 and session == "s-t1",
        )
        with world.journal.read() as session:
            turn = session.get_one(InteractionRow, shown)
            assert Wishes(session, world.settings).of(turn, None) == "Use a list."
        await world.source.close()
        world.journal.close()


async def test_a_comment_that_was_taken_back_is_no_wish_any_more(tmp_path: Path) -> None:
    with StubEngine(api_key="k") as engine:
        world = ShadowWorld(tmp_path, engine, earlier_hints=4)
        name = world.turn(hint=None)
        with world.journal.write() as session:
            said = judgement(name, -1, "Use bold.")
            record_judgement(session, said, FEEDBACK)  # of a comment; no comment stands behind it now
            turn = session.get_one(InteractionRow, name)
            assert Wishes(session, world.settings).of(turn, None) == ""
        await world.source.close()
        world.journal.close()
