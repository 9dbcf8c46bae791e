"""Traces are on if OpenTelemetry's own variables say so, and only the part that sends them gets these."""

import pytest

from burnish import config
from burnish.config.tracing import CONTENT, PART, PATIENCE, Tracing, tracing
from burnish.processes.parts import parts_of

WHERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_an_endpoint_turns_traces_on(name: str) -> None:
    assert tracing({name: "http://127.0.0.1:4318"}) == Tracing(has_content=False, timeout=PATIENCE)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
        {"OTEL_SERVICE_NAME": "shop"},
        {**WHERE, "OTEL_SDK_DISABLED": "TRUE"},
        {**WHERE, "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_they_are_off_otherwise(variables: dict[str, str]) -> None:
    assert tracing(variables) is None


@pytest.mark.parametrize(
    ("value", "has_content"),
    [("true", True), ("True", True), ("SPAN_ONLY", True), ("SPAN_AND_EVENT", True), ("false", False), ("", False),
     ("NO_CONTENT", False), ("EVENT_ONLY", False), ("yes please", False)],
)  # fmt: skip
def test_words_leave_only_if_that_is_said(value: str, has_content: bool) -> None:
    found = tracing({**WHERE, CONTENT: value})
    assert found is not None and found.has_content is has_content


def test_a_time_out_of_the_environment_counts() -> None:
    assert tracing({**WHERE, "OTEL_EXPORTER_OTLP_TIMEOUT": "20"}) == Tracing(timeout=None)


def test_the_protocol_that_is_asked_for_is_known() -> None:
    found = tracing({**WHERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert found == Tracing(protocol="grpc") and tracing(WHERE) == Tracing(protocol="http/protobuf")


def test_only_the_part_that_sends_traces_gets_the_variables() -> None:
    secret = {**WHERE, "OTEL_EXPORTER_OTLP_HEADERS": "authorization=planted"}
    parts = parts_of(config.load(flags={"remote.model": "openai/x"}), {**secret, "PATH": "/bin"})
    assert {part.name for part in parts if "OTEL_EXPORTER_OTLP_HEADERS" in part.environment} == {PART}
    assert {part.name for part in parts if "planted" in str(part.environment)} == {PART}
    assert all(part.environment["PATH"] == "/bin" for part in parts) and len(parts) > 4
