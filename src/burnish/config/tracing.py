"""Whether traces are sent, and with what. Burnish has no settings for it: OpenTelemetry's own variables decide.

The SDK reads the others itself: where to, with which headers, how many.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "OTEL_"
PART = "swapper"
"""The part that sends traces. No other gets the variables, because headers may hold a secret."""
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
TIMEOUTS = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
PATIENCE = 5.0
"""Seconds for one delivery. The SDK's own ten would make a stop too long."""
_WITH_CONTENT = frozenset({"true", "1", "span_only", "span_and_event"})


@dataclass(frozen=True, slots=True)
class Tracing:
    """How traces are sent. `has_content`: with what people and models said. `timeout` is None if a variable says it.
    `protocol` is the one that is asked for.
    """

    has_content: bool = False
    timeout: float | None = PATIENCE
    protocol: str = PROTOCOL


def tracing(environment: Mapping[str, str] = os.environ) -> Tracing | None:
    """What the variables say. None: no traces."""

    def said(name: str) -> str:
        return environment.get(name, "").strip().lower()

    is_off = said("OTEL_SDK_DISABLED") == "true" or said("OTEL_TRACES_EXPORTER") == "none"
    if is_off or not any(map(said, ENDPOINTS)):
        return None
    return Tracing(
        has_content=said(CONTENT) in _WITH_CONTENT,
        timeout=None if any(map(said, TIMEOUTS)) else PATIENCE,
        protocol=next(filter(None, map(said, PROTOCOLS)), PROTOCOL),
    )
