"""What a trace tells of a turn, and of what was made from it."""

import json
from array import array
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from burnish.journal.tables import GroupSampleRow
from burnish.records import FeedbackSource, Sampling, StepOutcome, TargetKind
from burnish.server.rollout.traces.spans import Origin
from tests.factories import assistant
from tests.server.rollout.traces.trace_world import CLIENT_SPAN, NOT_SAMPLED, SENT, TRACE, TraceWorld, ids, names


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_nothing_from_before_the_first_look_is_told(world: TraceWorld) -> None:
    world.say("before")
    assert await world.look() == ()
    world.rate("before", 1.0)
    world.promote(world.publish("before"), 0)
    world.say("after")
    assert [told(span)["gen_ai.response.id"] for span in await world.look()] == ["after"]
    assert await world.look() == ()


async def test_a_turn_has_the_conventions_attributes(world: TraceWorld) -> None:
    await world.look()
    turn = world.say("t", sampling=Sampling(temperature=0.7, top_p=0.9, top_k=40), n_choices=2)
    (span,) = await world.look()
    assert (span.name, span.kind, span.status.status_code) == ("chat agent", SpanKind.SERVER, StatusCode.UNSET)
    assert (span.start_time, span.end_time) == (int(turn.started_at * 1e9), int(turn.ended_at * 1e9))
    assert told(span) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "burnish",
        "gen_ai.agent.name": "agent",
        "gen_ai.request.model": "agent",
        "gen_ai.request.temperature": 0.7,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.top_k": 40,
        "gen_ai.request.presence_penalty": 0.0,
        "gen_ai.request.frequency_penalty": 0.0,
        "gen_ai.request.choice.count": 2,
        "gen_ai.response.model": "agent@v0",
        "gen_ai.response.id": "t",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.conversation.id": "s-t",
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 2,
        "burnish.agent": "agent",
        "burnish.version": 0,
        "burnish.tenant": "default",
        "burnish.route": "chat",
        "burnish.kind": "main",
        "burnish.choice": 0,
        "burnish.aborted": False,
    }
    assert span.resource.attributes["service.name"] == "burnish"


async def test_what_is_not_known_is_left_out(world: TraceWorld) -> None:
    await world.look()
    nothing: dict[str, Any] = {"prompt_ids": array("i"), "token_ids": array("i"), "logprobs": array("f")}
    world.say("t", route="completions", upstream="openai/gpt-5", finish_reason=None, is_aborted=True, **nothing)
    (span,) = await world.look()
    assert span.name == "text_completion agent"
    assert (told(span)["gen_ai.response.model"], told(span)["burnish.aborted"]) == ("openai/gpt-5", True)
    assert not {"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.response.finish_reasons"} & set(
        told(span)
    )


async def test_the_clients_span_is_the_parent(world: TraceWorld) -> None:
    await world.look()
    world.say("t", traceparent=SENT)
    world.say("alone")
    world.say("alone#1", request_id="alone", choice=1)
    first, *choices = await world.look()
    trace_id, _, parent = ids(first)
    assert (trace_id, parent) == (int(TRACE, 16), int(CLIENT_SPAN, 16))
    assert first.parent is not None and first.parent.is_remote
    assert [ids(span)[0] for span in choices] == [Origin("alone", "alone", "agent").trace_id] * 2
    assert len({ids(span)[1] for span in choices}) == 2 and {ids(span)[2] for span in choices} == {None}


async def test_one_trace_goes_from_the_request_to_the_version(world: TraceWorld) -> None:
    await world.look()
    world.say("t", traceparent=SENT)
    world.say("u")
    world.judge("t", 1, "be brief")
    world.rate("t", -1.0)
    world.promote(world.publish("t", "u"), 0)
    spans = [span for span in await world.look() if ids(span)[0] == int(TRACE, 16)]
    assert names(spans) == ["chat agent", "evaluate verdict", "evaluate rating", "train agent@v1", "trial agent@v1"]
    parents = {ids(span)[1]: span.name for span in spans}
    assert [parents.get(ids(span)[2] or 0) for span in spans] == [
        None, "chat agent", "chat agent", "chat agent", "train agent@v1",
    ]  # fmt: skip
    *_, train, trial = spans
    assert train.end_time == trial.start_time
    assert told(train) == {
        "burnish.agent": "agent",
        "burnish.version": 1,
        "burnish.step.id": 1,
        "burnish.step.outcome": "published",
        "burnish.step.reason": "passed",
        "burnish.step.parent": 0,
        "burnish.step.attempt": 1,
        "burnish.row.reward": 1.0,
        "burnish.row.reward_source": "user",
    }
    assert told(trial) == {
        "burnish.agent": "agent",
        "burnish.version": 1,
        "burnish.decision.outcome": "promoted",
        "burnish.decision.actor": "gate",
        "burnish.decision.reason": "passed",
    }


async def test_later_spans_find_their_trace_after_a_restart(world: TraceWorld) -> None:
    await world.look()
    world.say("t")
    (turn,) = await world.look()
    number = world.publish("t")
    assert await world.look() == ()  # the step ends with the decision
    world.tail.close()
    world.restarted()
    world.exporter._stopped = False
    world.refuse(number)
    train, trial = await world.look()
    assert names([train, trial]) == ["train agent@v1", "trial agent@v1"]
    assert ids(train)[0] == ids(trial)[0] == ids(turn)[0]
    assert (ids(train)[2], ids(trial)[2]) == (ids(turn)[1], ids(train)[1])
    assert told(trial)["burnish.decision.outcome"] == "refused"


async def test_a_later_promotion_and_a_rollback_are_no_trial(world: TraceWorld) -> None:
    await world.look()
    world.say("t")
    world.say("u")
    one, two = world.publish("t"), world.publish("u")
    world.promote(one, 0)
    world.promote(two, 1)
    world.promote(one, 2, actor="canary")
    found = [
        (span.name, told(span)["burnish.decision.outcome"])
        for span in await world.look()
        if "@v" in span.name and "train" not in span.name
    ]
    assert found == [
        ("trial agent@v1", "promoted"),
        ("trial agent@v2", "promoted"),
        ("promote agent@v1", "promoted"),
        ("roll back agent@v2", "rolled back"),
    ]


async def test_a_step_without_a_version_is_told_with_its_end(world: TraceWorld) -> None:
    await world.look()
    world.say("t")
    failed, waiting = world.begin_step("t", skipped="no signal"), world.begin_step("t")
    world.close_step(failed, StepOutcome.FAILED, "the loss is not finite")
    turn, train = await world.look()
    assert (train.name, train.status.status_code, train.status.description) == (
        "train agent@v1", StatusCode.ERROR, "the loss is not finite",
    )  # fmt: skip
    assert told(train)["burnish.row.skipped"] == "no signal"
    assert await world.look() == ()
    world.close_step(waiting, StepOutcome.EMPTY, "no row is left")
    (later,) = await world.look()
    assert (later.name, later.status.status_code, ids(later)[2]) == ("train agent@v2", StatusCode.UNSET, ids(turn)[1])


async def test_a_shadow_group_is_a_row_of_its_live_turn(world: TraceWorld) -> None:
    await world.look()
    world.say("t")
    step = world.begin_step()
    with world.journal.write() as session:
        session.add(GroupSampleRow(step_id=step.step_id or 0, interaction_id="t", scores=[1.0, 0.0], weight=0.5))
    world.close_step(step, StepOutcome.REFUSED, "the adapter forgot")
    _, train = await world.look()
    assert (told(train)["burnish.row.weight"], "burnish.row.reward" in told(train)) == (0.5, False)


async def test_every_kind_of_feedback_is_an_evaluation(world: TraceWorld) -> None:
    await world.look()
    world.say("t")
    world.rate("t", -1.0, comment="too long", score=0.25)
    world.rate("t", None, outcome=1.0, label="ticket closed", source=FeedbackSource.VERIFIER)
    world.rate("t", None, correction="Yes.")
    world.rate("t", None, demonstration="Yes!", about=TargetKind.TURN)
    world.judge("t", None, reason="the votes disagree")
    _, verdict, *said = await world.look()
    assert told(verdict)["gen_ai.evaluation.score.label"] == "abstained"
    assert "gen_ai.evaluation.score.value" not in told(verdict)
    assert [
        (told(span)["gen_ai.evaluation.name"], told(span).get("gen_ai.evaluation.score.value")) for span in said
    ] == [("rating", -1.0), ("score", 0.25), ("outcome", 1.0), ("correction", None), ("demonstration", None)]
    assert [told(span)["burnish.evaluation.source"] for span in said] == ["user", "user", "verifier", "user", "user"]


async def test_feedback_that_was_deleted_and_turns_that_were_erased_are_not_told(world: TraceWorld) -> None:
    await world.look()
    world.say("t")
    world.say("gone")
    world.rate("t", 1.0, feedback_id="f")
    world.rate("t", None, feedback_id="f", is_deleted=True)
    world.judge("gone", 1)
    number = world.publish("t", "gone")
    world.promote(number, 0)
    world.erase("gone")
    found = await world.look()
    assert names(found) == ["chat agent", "train agent@v1", "trial agent@v1"]
    assert len({ids(span)[0] for span in found}) == 1


async def test_no_word_leaves_unless_it_is_asked_for(world: TraceWorld) -> None:
    def happen(name: str) -> None:
        call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": "planted-call"}'}}
        world.say(name, "planted-prompt", tools=({"type": "function"},), traceparent=SENT)
        world.judge(name, -1, "planted-hint", reason="planted-reason")
        world.rate(name, -1.0, comment="planted-comment", correction="planted-right", label="planted-label")
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,planted-image"}}
        parts = [{"type": "text", "text": "planted-part \ud83d"}, image]
        messages = [
            {"role": "system", "content": "planted-system"},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "planted-result"},
        ]
        turn = world.say(f"{name}-2")
        world.write(replace(turn, interaction_id=f"{name}-3", messages=messages, reply=assistant("planted-reply")))
        world.ingest()

    await world.look()
    happen("quiet")
    spans = await world.look()
    assert len(spans) == 5 and "planted" not in "".join(span.to_json() for span in spans)
    world.restarted(has_content=True)
    happen("loud")
    spans = await world.look()
    text = "".join(span.to_json() for span in spans)
    for word in ("prompt", "hint", "comment", "part", "system", "call", "result", "reply", "label"):
        assert f"planted-{word}" in text, word
    assert "planted-image" not in text
    (last,) = [span for span in spans if told(span).get("gen_ai.response.id") == "loud-3"]
    assert json.loads(told(last)["gen_ai.input.messages"]) == [
        {"role": "system", "parts": [{"type": "text", "content": "planted-system"}]},
        {"role": "user", "parts": [{"type": "text", "content": "planted-part ?"}, {"type": "image_url"}]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c1", "name": "add", "arguments": '{"a": "planted-call"}'}],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "planted-result"}]},
    ]
    assert json.loads(told(last)["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "planted-reply"}], "finish_reason": "stop"}
    ]


async def test_the_client_decides_whether_its_trace_is_sent(world: TraceWorld) -> None:
    await world.look()
    world.say("t", traceparent=NOT_SAMPLED)
    world.rate("t", 1.0)
    world.promote(world.publish("t"), 0)
    world.say("u")
    assert [told(span)["gen_ai.response.id"] for span in await world.look()] == ["u"]


@pytest.mark.parametrize(
    ("sampler", "argument", "n_traces"),
    [("traceidratio", "0", 0), ("parentbased_traceidratio", "0.5", None), ("always_on", "", 22), ("always_off", "", 0)],
)
async def test_all_spans_of_a_trace_are_sampled_alike(
    world: TraceWorld, monkeypatch: pytest.MonkeyPatch, sampler: str, argument: str, n_traces: int | None
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    if argument:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    world.restarted()
    await world.look()
    turns = [f"t{number}" for number in range(20)]
    for name in turns:
        world.say(name)
    world.say("theirs", traceparent=SENT)
    world.say("not", traceparent=NOT_SAMPLED.replace(TRACE, "a" * 32))
    world.promote(world.publish(*turns, "theirs", "not"), 0)
    spans = await world.look()
    traces = {span.name.partition(" ")[0]: set[int]() for span in spans}
    for span in spans:
        traces[span.name.partition(" ")[0]].add(ids(span)[0])
    assert all(found == traces["chat"] for found in traces.values())
    if n_traces is None:
        assert 3 <= len(traces["chat"]) <= 18 and int(TRACE, 16) in traces["chat"]
        assert int("a" * 32, 16) not in traces["chat"]
    else:
        assert len(traces.get("chat", ())) == n_traces


async def test_the_environment_names_the_service(world: TraceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    world.restarted()
    await world.look()
    world.say("t")
    (span,) = await world.look()
    resource = span.resource.attributes
    assert (resource["service.name"], resource["deployment.environment.name"]) == ("shop", "test")
