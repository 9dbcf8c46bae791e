"""The scripted engine finds a request's place in the script from its messages, and records the truth about it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from burnish.testing import EOS, Outcome, Part, Refusal, Scene, Script, Scripted, ScriptedEngine, Side, Step, StubEngine

LOOK = Scripted("", [("look", '{"at": "@mark"}'), ("look", '{"at": "@mark"}')])
SCRIPT = Script(
    [
        Scene("walk", [Step([LOOK], [Refusal(503)]), Step([Scripted("done @mark"), Scripted("again @mark")])]),
        Scene("child", [Step([Scripted("@mark")])], parent="walk"),
    ],
    [Side("title", "(?i)title", Scripted("A walk"))],
)


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(script=SCRIPT) as running:
        yield running


def ask(engine: StubEngine, request_id: str, messages: list[dict[str, Any]], **body: Any) -> httpx.Response:
    body = {"model": "base", "messages": messages, "return_token_ids": True, "logprobs": True, **body}
    return httpx.post(f"{engine.url}/v1/chat/completions", json=body, headers={"x-request-id": request_id})


def say(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_a_scene_is_played_step_by_step(engine: ScriptedEngine) -> None:
    messages = [say("scene:walk.1 please")]
    assert ask(engine, "a", messages).status_code == 503
    first = ask(engine, "b", messages).json()["choices"][0]["message"]
    assert [call["function"]["arguments"] for call in first["tool_calls"]] == ['{"at": "walk.1#1"}'] * 2
    messages += [
        first,
        *({"role": "tool", "tool_call_id": call["id"], "content": "seen"} for call in first["tool_calls"]),
    ]
    assert ask(engine, "c", messages).json()["choices"][0]["message"]["content"] == "done walk.1#2"
    assert ask(engine, "d", messages).json()["choices"][0]["message"]["content"] == "again walk.1#2.1"
    refused, b, c, d = engine.truths
    assert (refused.outcome, refused.attempt, b.outcome, b.attempt) == (Outcome.REFUSED, 1, Outcome.ANSWERED, 2)
    assert (b.continues, c.continues, d.continues) == (None, ("b", 0), ("b", 0))
    assert (c.run, c.step, c.n_results, d.attempt) == ("walk.1", 2, 2, 2)
    assert bytes(c.token_ids[0][:-1]).decode() == "done walk.1#2"


def test_a_changed_history_is_known_by_its_marks(engine: ScriptedEngine) -> None:
    ask(engine, "a", [say("scene:walk.2 please")])
    ask(engine, "b", [say("scene:walk.2 please")])
    ask(engine, "c", [say("scene:walk.2 please"), say("Summary: looked at walk.2#1")])
    assert engine.truths[-1].continues == ("b", 0)
    assert engine.truths[-1].is_rewritten


def test_side_calls_and_sub_agents(engine: ScriptedEngine) -> None:
    assert (
        ask(engine, "a", [say("Give a title to: scene:walk.3")]).json()["choices"][0]["message"]["content"] == "A walk"
    )
    ask(engine, "b", [say("scene:child.3")])
    assert [truth.part for truth in engine.truths] == [Part.SIDE, Part.SUBAGENT]


def test_a_reply_without_a_mark_cannot_be_in_a_script() -> None:
    with pytest.raises(ValueError, match="has no @mark"):
        Script([Scene("walk", [Step([Scripted("done")])])])


def test_limits_and_stops() -> None:
    with StubEngine(["one two three"]) as engine:
        short = ask(engine, "a", [say("x")], max_tokens=3).json()["choices"][0]
        stopped = ask(engine, "b", [say("x")], stop=["two"]).json()["choices"][0]
    assert (short["message"]["content"], short["finish_reason"], len(short["token_ids"])) == ("one", "length", 3)
    assert (stopped["message"]["content"], stopped["finish_reason"], stopped["stop_reason"]) == ("one ", "stop", "two")
    assert bytes(stopped["token_ids"]).decode() == "one two"


def test_reasoning_stands_apart() -> None:
    with StubEngine([Scripted("yes", reasoning="hm")]) as engine:
        choice = ask(engine, "a", [say("x")]).json()["choices"][0]
        text = ask(engine, "b", [say("x")], stream=True).text
    assert (choice["message"]["reasoning"], choice["message"]["content"]) == ("hm", "yes")
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in text.splitlines() if line.startswith("data: {")]
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == "hm"
    assert bytes(choice["token_ids"][:-1]).decode() == "<think>hm</think>yes"


def test_text_completions_carry_their_prompts() -> None:
    with StubEngine(["hello"]) as engine:
        body = {"model": "base", "prompt": ["a", "bc"], "logprobs": 0, "return_token_ids": True}
        whole = httpx.post(f"{engine.url}/v1/completions", json=body).json()["choices"]
        text = httpx.post(f"{engine.url}/v1/completions", json=body | {"stream": True}).text
    assert [(choice["text"], choice["prompt_token_ids"]) for choice in whole] == [("hello", [97]), ("hello", [98, 99])]
    assert whole[0]["token_ids"] == [*b"hello", EOS]
    assert whole[0]["logprobs"]["text_offset"] == [0, 1, 2, 3, 4, 5]
    chunks = [json.loads(line[6:])["choices"][0] for line in text.splitlines() if line.startswith("data: {")]
    assert [chunk["prompt_token_ids"] for chunk in chunks[:3]] == [[97], [98, 99], None]
    assert [token for chunk in chunks if chunk["index"] == 1 for token in chunk["token_ids"]] == [*b"hello", EOS]


def test_tokenize_and_embeddings() -> None:
    with StubEngine() as engine:
        counted = httpx.post(f"{engine.url}/tokenize", json={"model": "base", "messages": [say("hi")]}).json()
        found = httpx.post(f"{engine.url}/v1/embeddings", json={"model": "base", "input": ["a", "b"]}).json()
    assert (counted["count"], counted["tokens"]) == (8, [*b"user\nhi\n"])
    assert [entry["index"] for entry in found["data"]] == [0, 1]


def test_it_is_a_process_too(tmp_path: Path) -> None:
    script = {"scenes": [{"name": "walk", "steps": [{"tool_calls": [["look", {"at": "@mark"}]]}, "done @mark"]}]}
    (tmp_path / "script.json").write_text(json.dumps(script), encoding="utf-8")
    command = [sys.executable, "-m", "burnish.testing", "--script", str(tmp_path / "script.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        body = {"model": "base", "messages": [say("scene:walk")]}
        reply = httpx.post(f"{url}/v1/chat/completions", json=body, headers={"x-request-id": "a"}).json()
        told = httpx.get(f"{url}/script/truth").json()
        process.terminate()
    assert reply["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"at": "walk#1"}'
    assert [(truth["request_id"], truth["outcome"]) for truth in told] == [("a", "answered")]
    assert process.returncode == 0
