"""Logging: structlog, readable on a terminal or one JSON object a line. A request's body is never logged.

Tracebacks show files, lines and messages. They never show local variables, because those hold keys, bodies and records.
"""

import io
import logging
import sys
from typing import TextIO, cast

import structlog


def configure(log_format: str, part: str | None = None) -> None:
    """Set up structlog for this process. `part` names it in JSON lines; on a console the supervisor's prefix does."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso" if log_format == "json" else "%H:%M:%S", utc=log_format == "json"),
        structlog.processors.StackInfoRenderer(),
    ]
    as_json = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))
    as_text = structlog.dev.RichTracebackFormatter(show_locals=False)
    renderers: list[structlog.typing.Processor] = (
        [as_json, structlog.processors.JSONRenderer()]
        if log_format == "json"
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=28, exception_formatter=as_text)]
    )
    structlog.configure(
        processors=[*shared, _without_none, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(file=cast(TextIO, _Stderr())),
        cache_logger_on_first_use=True,
    )
    if part and log_format == "json":
        structlog.contextvars.bind_contextvars(part=part)


class _Stderr(io.TextIOBase):
    """Standard error at the time of writing: loggers are cached, and code that captures output replaces the stream."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def _without_none(_logger: object, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {key: value for key, value in event.items() if value is not None}
