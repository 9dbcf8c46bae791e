"""Logging: structlog, readable on a terminal or one JSON object a line. A request's body is never logged.

Tracebacks show files and lines. They never show local variables, because those hold keys, bodies and records, nor a
message that may quote them: of errors that are not Burnish's own or about the machine they show the type alone.
"""

import io
import logging
import sys
from pathlib import Path
from typing import TextIO, cast

import structlog

from burnish.errors import SAID, BurnishError

_OF_THE_MACHINE = (OSError, ImportError, NameError, AttributeError, AssertionError, MemoryError, RuntimeError)
_OF_DATABASES = ("OperationalError", "ProgrammingError")
DEEPEST = 10
"""Causes of causes that a traceback shows."""


def told(error: BaseException) -> str:
    """What a log may say of an error: a message without what others said, or its type and place."""
    words, kind = _message(error), type(error).__name__
    if words is not None:
        return words if isinstance(error, BurnishError) else f"{kind}: {words}"
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return kind if place is None else f"{kind} at {Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"


def configure(log_format: str, part: str | None = None) -> None:
    """Set up structlog for this process. `part` names it in JSON lines; on a console the supervisor's prefix does."""
    shared: list[structlog.typing.Processor] = [
        _without_messages,
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


def _message(error: BaseException) -> str | None:
    """The error's message, if it cannot quote anybody."""
    if isinstance(error, BurnishError):
        return str(error).partition(SAID)[0]
    is_plain = isinstance(error, _OF_THE_MACHINE) or type(error).__name__ in _OF_DATABASES
    return str(error) if is_plain else None


def _without_messages(_logger: object, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    given = event.get("exc_info")
    error = sys.exc_info()[1] if given is True else given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        shown = _stand_in(error)
        event["exc_info"] = (type(shown), shown, shown.__traceback__)
    return event


def _stand_in(error: BaseException, depth: int = 0) -> BaseException:
    """An error of the same name and place with the message that may be shown."""
    words = _message(error)
    made = type(type(error).__name__, (Exception,), {"__module__": type(error).__module__})(*filter(None, [words]))
    if depth < DEEPEST:
        made.__cause__ = _stand_in(error.__cause__, depth + 1) if error.__cause__ is not None else None
        made.__context__ = _stand_in(error.__context__, depth + 1) if error.__context__ is not None else None
    made.__suppress_context__ = error.__suppress_context__
    shown: BaseException = made.with_traceback(error.__traceback__)
    return shown


def _without_none(_logger: object, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {key: value for key, value in event.items() if value is not None}
