"""Spans become OpenTelemetry's, and go to the receiver that the environment names. The SDK is imported only here.

Nothing is queued: `send` returns when the receiver has answered. So the tail's place moves on only behind what has
arrived.
"""

from collections.abc import Iterator, Sequence

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from burnish import __version__
from burnish.config.tracing import Tracing
from burnish.server.rollout.traces.spans import Origin, Span

NAME = "burnish"
AT_ONCE = 512
"""Spans in one request to the receiver."""
AT_ONCE_CHARACTERS = 2**21
"""Characters of texts in one request, if words leave. A single span may have more."""
NANOSECONDS = 1e9


class Otlp:
    """Sends through `exporter`. Sampling, limits and the resource are those of the environment."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._ids = _Given()
        self._ended = _Ended()
        provider = TracerProvider(id_generator=self._ids, resource=_resource(), shutdown_on_exit=False)
        provider.add_span_processor(self._ended)
        self._sampler = provider.sampler
        self._tracer = provider.get_tracer(NAME, __version__)

    @classmethod
    def of(cls, tracing: Tracing) -> "Otlp":
        """To the receiver that the environment names. Raises an error if a variable is wrong."""
        return cls(OTLPSpanExporter(timeout=tracing.timeout))

    def is_sampled(self, origin: Origin) -> bool:
        """The client's decision if it has made one, else the sampler's, by trace id. `OTEL_TRACES_SAMPLER` may also
        name a sampler that does not ask the client.
        """
        asked = self._sampler.should_sample(_client_of(origin), origin.trace_id, NAME)
        return asked.decision is Decision.RECORD_AND_SAMPLE

    def send(self, spans: Sequence[Span]) -> bool:
        return all(self._exporter.export(self._made(some)) is SpanExportResult.SUCCESS for some in _batches(spans))

    def close(self) -> None:
        self._exporter.shutdown()

    def _made(self, spans: Sequence[Span]) -> Sequence[ReadableSpan]:
        """The spans as the SDK has them. One that the sampler drops after all is left out."""
        for span in spans:
            origin, parent = span.origin, span.parent
            self._ids.trace_id, self._ids.span_id = origin.trace_id, origin.span_id(span.key)
            made = self._tracer.start_span(
                span.name,
                context=_client_of(origin) if parent is None else _context(origin, origin.span_id(parent)),
                kind=SpanKind.SERVER if parent is None else SpanKind.INTERNAL,
                attributes=span.attributes,
                start_time=int(span.start * NANOSECONDS),
            )
            if span.error is not None:
                made.set_status(Status(StatusCode.ERROR, span.error))
            made.end(int(span.end * NANOSECONDS))
        return self._ended.taken()


class _Given(IdGenerator):
    """The ids that the next span gets."""

    trace_id = span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class _Ended(SpanProcessor):
    """Keeps spans that have ended."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)

    def taken(self) -> list[ReadableSpan]:
        spans, self._spans = self._spans, []
        return spans


def _client_of(origin: Origin) -> Context:
    """The context that the client sent. Empty if it sent none."""
    parent = origin.parent
    return Context() if parent is None else _context(origin, parent.span_id, is_sampled=parent.is_sampled)


def _context(origin: Origin, parent_id: int, *, is_sampled: bool = True) -> Context:
    flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
    parent = SpanContext(origin.trace_id, parent_id, is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(parent), Context())


def _resource() -> Resource:
    """The service, with what `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say of it."""
    said = Resource.create()
    if str(said.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        said = said.merge(Resource({SERVICE_NAME: NAME}))
    return Resource({SERVICE_VERSION: __version__}).merge(said)


def _batches(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Parts of `spans` that one request may hold."""
    some: list[Span] = []
    n_characters = 0
    for span in spans:
        size = sum(len(value) for value in span.attributes.values() if isinstance(value, str))
        if some and (len(some) == AT_ONCE or n_characters + size > AT_ONCE_CHARACTERS):
            yield some
            some, n_characters = [], 0
        some.append(span)
        n_characters += size
    if some:
        yield some
