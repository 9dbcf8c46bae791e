"""The tool agent's world, its sessions on a scripted agent, the figures and the report, and that finished runs stay."""

import asyncio
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from rich.console import Console

from benchmarks.learning import __main__ as command
from benchmarks.learning import frozen
from benchmarks.learning.client import Reply
from benchmarks.learning.part import Choice, Shown
from benchmarks.learning.results import Result, Results
from benchmarks.learning.tools import figures, plots, report, silent, world
from benchmarks.learning.tools.arms import ARMS
from benchmarks.learning.tools.hinting import Hinting
from benchmarks.learning.tools.part import PART, TABLES
from benchmarks.learning.tools.run import score
from benchmarks.learning.tools.session import Played, play
from benchmarks.learning.tools.world import Printed, Step
from burnish.judges.verdicts.hint_rules import USERS, hint_status_of
from burnish.judges.verdicts.verdict import Vote, parse_vote
from burnish.records import Provenance, SignalKind
from burnish.rewards import ACCEPTED
from burnish.sandbox.world import tool_task
from burnish.server.ingest.patterns.tool_signals import signals_of

RECORDED = "bc3444329b17f0fb563b56f4a1f873c0816def0db033d3594327c2f4c71402bd"
"""Of `world.FILES`. Who changes it throws away all that was measured, and says in the commit why the world had to
change."""


class Agent:
    """A client whose replies are written by `call` (of the offered names and the key) and, after a tool, `answer`."""

    def __init__(self, call: Callable[[Sequence[str], str], str], is_lost: bool = False) -> None:
        self.requests: list[dict[str, Any]] = []
        self.outcomes: dict[str, bool] = {}
        self.comments: list[tuple[str, str]] = []
        self._call, self._is_lost = call, is_lost

    async def ask(self, model: str, messages: Sequence[Mapping[str, Any]], **given: Any) -> Reply | None:
        self.requests.append({"messages": messages, **given})
        if self._is_lost:
            return None
        if messages[-1]["role"] == "tool":
            value = messages[-1]["content"].rpartition(" ")[2]
            return Reply("r", f"The value of {key_in(messages[0]['content'])} is {value}.")
        names = [tool["function"]["name"] for tool in given["tools"]]
        key = key_in(messages[0]["content"])
        text = self._call(names, key)
        called = {"id": "call_7", "type": "function", "function": {}}
        return Reply(
            "r", text, {"role": "assistant", "content": None, "tool_calls": [called] if "<tool_call>" in text else None}
        )

    async def comment(self, response_id: str, words: str) -> None:
        self.comments.append((response_id, words))

    async def conclude(self, session: str, is_success: bool) -> None:
        self.outcomes[session] = is_success


def key_in(text: str) -> str:
    return next(key for key in tool_task.KEYS if f" {key}" in text)


def played(agent: Agent, steps: Sequence[Step], seed: int = 0, may_train: bool = True) -> Played:
    return asyncio.run(play(agent, "agent", "s0", steps, world.truth(seed), may_train=may_train))  # type: ignore[arg-type]


def knowing(seed: int) -> Callable[[Sequence[str], str], str]:
    """Calls the tool that works in the deployment of this seed."""
    works = {frozenset(names): world.truth(seed)[i] for i, names in enumerate(world.TOOLSETS)}
    return lambda names, key: tool_task.call_text(works[frozenset(names)], key)


def test_the_world_is_the_recorded_one() -> None:
    assert frozen.digest(world.FILES) == RECORDED


def test_deployments_differ_and_one_tool_of_each_set_works() -> None:
    truths = [world.truth(seed) for seed in range(30)]

    assert all(truth[i] in names for truth in truths for i, names in enumerate(world.TOOLSETS))
    assert {truth[0] for truth in truths} == set(world.TOOLSETS[0])
    assert {truth[3] for truth in truths} == set(world.TOOLSETS[3])


def test_no_session_of_a_run_asks_for_a_key_of_the_exam() -> None:
    asked = {step.key for steps in world.sessions(0, world.N_SESSIONS) for step in steps}
    examined = {step.key for steps in world.exam() for step in steps}

    assert not asked & examined
    assert examined == set(world.HELD_OUT)


def test_sessions_are_numbered_whatever_the_round() -> None:
    assert world.sessions(3, 8, 8) == world.sessions(3, 16)[8:]
    assert world.sessions(3, 1) != world.sessions(4, 1)


def test_an_even_choice_succeeds_once_in_27() -> None:
    shares = []
    for seed in range(8):
        works, hits = world.truth(seed), Counter[bool]()
        for n in range(27):
            for steps in world.exam():
                calls = [tool_task.call_text(step.names[n // 3**i % 3], step.key) for i, step in enumerate(steps)]
                hits[all(not world.run(s, c, works).exit_code for s, c in zip(steps, calls, strict=True))] += 1
        shares.append(hits[True] / hits.total())

    assert shares == pytest.approx([1 / 27] * 8)  # every choice is had once, so exactly


@pytest.mark.parametrize(
    ("reply", "name", "code"),
    [
        (tool_task.call_text("fetch", "plum"), "fetch", 0),
        (tool_task.call_text("query", "plum"), "query", 1),  # offered, and does not work here
        (tool_task.call_text("fetch", "pearl"), "fetch", 1),  # another key
        (tool_task.call_text("lookup", "plum"), world.RUNNER, 1),  # not offered
        (tool_task.call_text("fetch", "plum") * 2, world.RUNNER, 1),
        ('<tool_call>\n{"name": "fetch", "arguments": {"key": }}\n</tool_call>', "fetch", 1),
        ("The value of plum is 12.", world.RUNNER, 1),
        ("", world.RUNNER, 1),
    ],
)
def test_only_the_call_that_works_works(reply: str, name: str, code: int) -> None:
    step = Step(1, ("query", "fetch", "get_value"), "plum", "Look up plum.", 31)
    printed = world.run(step, reply, {1: "fetch"})

    assert (printed.name, printed.exit_code) == (name, code)


@pytest.mark.parametrize("code", [0, 1])
def test_what_is_printed_is_read_as_its_exit_code(code: int) -> None:
    """Else the integrated arm would have no step's rewards."""
    step = Step(1, ("query", "fetch", "get_value"), "plum", "Look up plum.", 31)
    printed = world.run(step, tool_task.call_text("query" if code else "fetch", "plum"), {1: "fetch"})
    [signal] = signals_of(printed.output, Provenance.VERIFIER)

    assert (signal.kind, signal.value) == (SignalKind.EXIT_CODE, float(code))
    assert printed.name in world.PROGRAMS


def test_telling_is_saying_the_value_or_that_there_is_none() -> None:
    step = Step(1, ("query", "fetch", "get_value"), "plum", "Look up plum.", 31)

    assert world.tells(step, Printed("fetch", 0, ""), "The value of plum is 31.")
    assert not world.tells(step, Printed("fetch", 0, ""), "The value of plum is 3.")
    assert world.tells(step, Printed("query", 1, ""), "I could not find plum.")
    assert not world.tells(step, Printed("query", 1, ""), "The value of plum is 31.")


def test_an_agent_that_knows_succeeds_in_its_own_deployment() -> None:
    first, other = ([played(Agent(knowing(0)), steps, seed) for steps in world.exam()] for seed in (0, 1))

    assert score(first) == 1.0
    assert all(all(each.answered_truly) for each in first)
    assert score(other) < 0.5


def test_a_session_is_held_together_by_its_name_and_its_outcome_told() -> None:
    agent = Agent(knowing(0))
    steps = world.sessions(0, 1)[0]
    end = played(agent, steps)

    assert (end.n_turns, end.is_success, agent.outcomes) == (6, True, {"s0": True})
    assert {request["session"] for request in agent.requests} == {"s0"}
    result = agent.requests[1]["messages"][-1]
    assert (result["tool_call_id"], result["name"]) == ("call_7", end.printed[0].name)
    assert all(request["temperature"] == 1.0 and request["may_train"] for request in agent.requests)


def test_an_exam_is_out_of_training_and_has_no_outcome() -> None:
    agent = Agent(knowing(0))
    played(agent, world.exam()[0], may_train=False)

    assert not any(request["may_train"] for request in agent.requests)
    assert agent.outcomes == {}


def test_one_failed_call_fails_the_session() -> None:
    steps = world.sessions(0, 1)[0]
    right = knowing(0)
    agent = Agent(lambda names, key: "no" if key == steps[1].key else right(names, key))
    end = played(agent, steps)

    assert [each.exit_code for each in end.printed] == [0, 1, 0]
    assert agent.outcomes == {"s0": False}
    assert agent.requests[3]["messages"][-1]["name"] == world.RUNNER


def test_users_say_of_some_failed_calls_which_tool_works() -> None:
    steps, works = world.sessions(0, 40), world.truth(0)
    hinting = Hinting(0, works)
    good, bad = Agent(knowing(0)), Agent(lambda names, key: "no")
    for each in steps:
        asyncio.run(play(good, "agent", "s", each, works, may_train=True, hinting=hinting))  # type: ignore[arg-type]
    assert (good.comments, hinting.n_said) == ([], 0)
    for each in steps:
        asyncio.run(play(bad, "agent", "s", each, works, may_train=True, hinting=hinting))  # type: ignore[arg-type]
    assert len(bad.comments) == hinting.n_said
    assert 0.25 < hinting.n_said / (40 * world.N_STEPS) < 0.55
    assert {words for _, words in bad.comments} == {f"Use the {tool} tool." for tool in works.values()}


def test_the_silent_judge_takes_down_a_comment_and_abstains_from_all_else() -> None:
    async def ask(text: str) -> Vote:
        async with silent.running() as url, aiohttp.ClientSession() as http:
            asked = {"model": "silent", "n": 1, "messages": [{"role": "user", "content": text}]}
            async with http.post(f"{url}/v1/chat/completions", json=asked) as response:
                return parse_vote((await response.json())["choices"][0]["message"]["content"])

    hinted, other = asyncio.run(ask("comment: Use the fetch tool.")), asyncio.run(ask("failed: exit code 1"))
    assert (hinted.score, hinted.hint) == (0, "Use the fetch tool.")
    assert (other.score, other.hint) == (None, None)
    assert hint_status_of(hinted.hint or "", hinted.score, 3, 3, USERS) == ACCEPTED


def test_a_lost_request_ends_the_session_without_a_word() -> None:
    agent = Agent(knowing(0), is_lost=True)
    end = played(agent, world.sessions(0, 1)[0])

    assert (end.n_turns, end.is_whole, end.is_success, agent.outcomes) == (0, False, False, {})


def test_only_arms_that_say_so_trust_exit_codes_or_ask_a_judge() -> None:
    trusts = {name for name, arm in ARMS.items() if "journal.verifiers" in arm.settings}
    asks = {name for name, arm in ARMS.items() if not arm.has_silent_judge}

    assert trusts == {
        "untrained",
        "integrated",
        "integrated+hints",
        "tools_shuffled",
        "tools-passes-1",
        "tools-passes-2",
    }
    assert asks == {"judged"}
    assert not ARMS["outcome"].has_steps and not ARMS["outcome+hints"].has_steps
    hinted = {name for name, arm in ARMS.items() if arm.has_hints}
    assert hinted == {name for name, arm in ARMS.items() if arm.settings.get("judge.votes", 3) >= 3} - {"judged"}


def results_of(n_seeds: int, finals: Mapping[str, float]) -> figures.ByArm:
    def one(arm: str, final: float, seed: int) -> Result:
        scores = {n: 0.04 + (final - 0.04) * n / 320 + 0.01 * (seed % 2) for n in world.MILESTONES}
        return Result(arm, seed, ARMS[arm].flags(seed), scores, {"told_truly": 0.97, "retention": 1.0, "n_failed": 0.0})

    return {arm: {seed: one(arm, final, seed) for seed in range(n_seeds)} for arm, final in finals.items()}


def printed_of(results: figures.ByArm) -> str:
    console = Console(width=220, file=io.StringIO(), record=True)
    report.show(console, results, "abc123")
    return console.export_text()


def test_the_bar_is_read_off_the_lower_bound() -> None:
    reported = Shown(TABLES, results_of(8, {"integrated": 0.93, "outcome": 0.3}), "abc")

    assert 0.93 < reported.figures()["tool_success_320"] < 0.935
    assert reported.figures()["tool_outcome_only_320"] == pytest.approx(0.305)
    assert reported.figures()["tool_gain_320"] == pytest.approx(0.63)
    assert reported.figures()["tool_integrated_success_320"] == pytest.approx(0.935)
    assert reported.unmet() == []
    assert Shown(TABLES, results_of(8, {"integrated": 0.88}), "abc").unmet() == ["tool_success_320"]


def test_seven_seeds_show_no_bar() -> None:
    reported = Shown(TABLES, results_of(7, {"integrated": 0.99, "outcome": 0.3}), "abc")

    assert reported.unmet() == ["tool_success_320"]
    assert not {figures.BAR, figures.BESIDE, figures.GAIN} & reported.figures().keys()
    assert "too few seeds (7)" in printed_of(reported.results)


def test_the_report_says_whose_users_they_are_and_what_is_missing() -> None:
    text = printed_of(results_of(2, {"integrated": 0.95}))

    assert "SIMULATED" in text
    assert "world abc123" in text
    assert (
        "no results: untrained, outcome, outcome+hints, integrated+hints, judged, tools-passes-1, tools-passes-2, "
        "tools_shuffled" in text.replace("\n", " ")
    )
    assert "no results: untrained" in printed_of({})


def test_a_picture_is_drawn_where_there_is_something(tmp_path: Path) -> None:
    paths = plots.draw(tmp_path / "plots", results_of(3, {"integrated": 0.9}))

    assert [path.name for path in paths] == ["tools.png", "tools.svg"]
    assert plots.draw(tmp_path / "none", {}) == []
    assert "SIMULATED" in plots.CAPTION


def test_finished_runs_are_used_and_not_made_again(tmp_path: Path) -> None:
    results = Results(tmp_path, "w" * 64)
    for by_seed in results_of(1, {"integrated": 0.9}).values():
        for result in by_seed.values():
            results.write(result)

    missing = [job.name for job in PART.missing(results, Choice(None, [0], is_again=False))]
    assert missing == ["untrained 0", "outcome 0", "outcome+hints 0", "integrated+hints 0"]
    assert [job.name for job in PART.missing(results, Choice(["judged"], [0, 1], is_again=False))] == [
        "judged 0",
        "judged 1",
    ]
    assert [job.name for job in PART.missing(results, Choice(["integrated"], [0], is_again=True))] == ["integrated 0"]
    assert list(PART.shown(PART.summaries(results)).results) == ["integrated"]


def test_an_arm_of_one_part_is_none_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def work(jobs: Sequence[Any], *_: Any) -> list[str]:
        asked.extend(job.name for job in jobs)
        return []

    monkeypatch.setattr(command.queue, "work", work)
    for arms in ("integrated", "off,outcome"):
        with pytest.raises(SystemExit):
            command.main(["--arms", arms, "--seeds", "0-0", "--home", str(tmp_path)])

    assert asked == ["integrated 0", "off 0", "outcome 0"]
