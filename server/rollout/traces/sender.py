"""Where spans go. The SDK is loaded only if traces are wanted."""

from collections.abc import Sequence
from typing import Protocol

import structlog

from burnish.config.tracing import PROTOCOL, Tracing
from burnish.server.rollout.traces.spans import Origin, Span

REMEDY = "traces are wanted, but OpenTelemetry is not installed here; install burnish with its `otel` extra"
log = structlog.get_logger(__name__)


class Sender(Protocol):
    """A way to a receiver of traces."""

    def is_sampled(self, origin: Origin) -> bool:
        """Whether the trace of this turn is sent: all of its spans, or none."""

    def send(self, spans: Sequence[Span]) -> bool:
        """Send them. False if they have not arrived."""

    def close(self) -> None:
        """Give up what is being sent."""


def sender_of(tracing: Tracing) -> Sender | None:
    """The sender that the environment describes. None, with a log line, if there can be none."""
    if tracing.protocol != PROTOCOL:
        log.warning("traces go by another protocol than asked for", asked=tracing.protocol, used=PROTOCOL)
    try:
        from burnish.server.rollout.traces.otlp import Otlp

        return Otlp.of(tracing)
    except ImportError:
        log.error(REMEDY)
    except (ValueError, OSError, RuntimeError) as error:
        log.error("traces cannot be sent: a variable OTEL_… is wrong", error=repr(error)[:300])
    return None
