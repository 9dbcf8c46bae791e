"""Runs of the real model's benchmark against the stub engine: all parts but vLLM and the learner are real."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.learning import loop
from benchmarks.learning.engine import SharedEngine
from benchmarks.learning.results import Result
from benchmarks.learning.style.run import Plan
from benchmarks.real_model import speed, trial
from benchmarks.real_model.english.arms import ARMS
from benchmarks.real_model.english.run import play
from benchmarks.real_model.exams import OF_BASE
from burnish.sandbox.english import questions, style
from burnish.testing import StubEngine

REPLY = "Fleming hates water, soap and six schools."


@pytest.mark.engine
@pytest.mark.timeout(300)
async def test_a_run_without_a_learner(tmp_path: Path) -> None:
    done: list[int] = []
    with StubEngine(replies=[REPLY]) as stub:
        engine = SharedEngine(stub.url, stub.api_key)
        plan = Plan(n_interactions=16, milestones=(0, 16))
        result = await play(
            ARMS["memory"], 0, engine, tmp_path / "run", tmp_path / "cache", lambda n, words="": done.append(n), plan
        )
        first = [body["messages"][0] for body in stub.requests if body["messages"][0]["role"] == "system"]

    found = style.breakdown(questions.heldout(), [REPLY] * len(questions.heldout()))
    assert result.scores == {0: found["score"], 16: found["score"]}
    assert result.curves["content"] == {0: found["content"], 16: found["content"]}
    assert result.curves["kept"] == result.curves["kept_sure"] == result.curves["general"] == {16: 1.0}
    assert result.curves["step_kl"] == {}
    assert (result.figures["n_failed"], result.figures["n_late"], result.figures["n_trained"]) == (0, 0, 0)
    assert sum(done) == 16
    # nobody has voiced a wish at the first exam; the reply has a comma, so the last exam's notes ask for none
    said = {str(message["content"]) for message in first}
    notes = {text for text in said if any(wish.instruction in text for wish in style.HOUSE_STYLE)}
    assert notes == {style.NO_COMMAS.instruction}
    assert (tmp_path / "cache" / OF_BASE).exists()


async def test_the_speed_of_streams_is_of_all_their_tokens(tmp_path: Path) -> None:
    with StubEngine(replies=["word"], token_delay=0.01) as stub:
        found = await speed.tokens_per_second(stub.url, "", 4, 8)

    assert found > 0
    assert len(stub.requests) == 4 * speed.N_REPLIES
    assert {(body["max_tokens"], body["ignore_eos"], body["stream"]) for body in stub.requests} == {(8, True, True)}
    assert len({str(body["messages"]) for body in stub.requests}) == 4 * speed.N_REPLIES


def test_the_bare_engine_has_none_of_our_flags(tmp_path: Path) -> None:
    ours, _, key = speed.ARMS["ours"].command("some/model", 9, tmp_path / "ours")
    bare, environment, no_key = speed.ARMS["bare-2"].command("some/model", 9, tmp_path / "bare")

    assert "--enable-lora" in ours and key
    assert not [flag for flag in bare if "lora" in flag or "priority" in flag or "worker" in flag] and not no_key
    assert environment["OMP_NUM_THREADS"] == "2" and int(environment["VLLM_CPU_KVCACHE_SPACE"]) >= 1
    assert ours[ours.index("--dtype") + 1] == bare[bare.index("--dtype") + 1]


def test_both_engines_serve_the_same_adapter(tmp_path: Path) -> None:
    for arm in (speed.OURS_ADAPTER, speed.BARE_ADAPTER):
        command, _, _ = speed.ARMS[arm].command("some/model", 9, tmp_path / arm)
        given = command[command.index("--lora-modules") + 1]
        assert speed.ADAPTER in given and str(tmp_path / arm / speed.ADAPTER) in given
        assert "--enable-lora" in command


def test_the_speed_with_an_adapter_is_compared_with_an_adapter() -> None:
    tokens = {"ours": 50.0, "bare-1": 40.0, "bare-2": 50.0, "ours+adapter": 40.0, "bare+adapter": 10.0}
    results = {arm: {0: Result(arm, 0, {}, {1: value, 8: 2 * value}, {})} for arm, value in tokens.items()}
    found = speed.barred(results)
    assert {key: each.value for key, each in found.items()} == {
        "engine_share_1": 1.0,
        "engine_share_8": 1.0,
        "adapter_share_1": 4.0,
        "adapter_share_8": 4.0,
    }
    assert "adapter_share_1" not in speed.barred({**results, "bare+adapter": {}})


async def test_clients_ask_beside_a_trial_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    n_on_trial = 0

    async def ask(agent: str, messages: Any, **more: Any) -> None:
        asked.append(agent)
        assert more["may_train"] is False
        await asyncio.sleep(0.01)

    monkeypatch.setattr(loop, "count_versions", lambda *_: n_on_trial)
    monkeypatch.setattr(trial, "LOOK", 0.001)
    running: Any = SimpleNamespace(agent="agent", client=SimpleNamespace(ask=ask))
    serving = asyncio.create_task(trial._serve_beside(running))
    await asyncio.sleep(0.05)
    assert asked == []

    n_on_trial = 1
    while len(asked) < trial.N_CLIENTS:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
