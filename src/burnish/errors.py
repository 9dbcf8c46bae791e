"""All errors that Burnish raises on purpose, as one tree.

A message says what was expected, what was found and, if there is one, the remedy. HTTP status codes are decided in one
place (`server/gateway/http/error_envelope.py`), never here.
"""

SAID = "; it said: "
"""Stands in a message before what another server said. That may quote a conversation, so no log has it."""


class BurnishError(Exception):
    """Root of the tree. Its text may be shown to the person who caused it."""


class ConfigError(BurnishError):
    """A setting is unknown, of the wrong type, or names something that does not exist."""


class RequestError(BurnishError):
    """A client's request cannot be honoured."""

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class NotAllowed(RequestError):
    """The key is missing or unknown, its scope does not cover the route, or the origin is foreign."""


class NotFound(RequestError):
    """The named model, version, agent or response does not exist."""


class Conflict(RequestError):
    """The object has changed since the caller looked: a compare-and-set failed."""


class EngineError(BurnishError):
    """The inference engine refused, failed or is absent."""


class EngineUnavailable(EngineError):
    """No engine answers now. `retry_after` (seconds) says when to come back."""

    def __init__(self, message: str, *, retry_after: float = 2.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RateLimited(BurnishError):
    """A key has used up its share. `retry_after` (seconds) says when to come back."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Overloaded(EngineUnavailable):
    """This gateway process runs as many requests as it may."""


class JournalError(BurnishError):
    """The journal cannot be opened, migrated or written."""


class JournalUnavailable(JournalError):
    """The journal's database does not answer now."""


class TableError(BurnishError):
    """The serving table cannot be read. It is left as it is, because a table made from nothing has no keys and no
    engines.
    """


class SegmentError(JournalError):
    """A segment's frame is torn or fails its checksum. Nothing before it is affected."""


class AdapterError(BurnishError):
    """An adapter directory is incomplete, altered or of the wrong shape, or the store belongs to another journal."""


class Postponed(BurnishError):
    """A decision waits for something. The text says for what."""


class LearnerError(BurnishError):
    """A training step cannot be carried out."""


class ModelError(BurnishError):
    """A known model cannot be fetched, converted or kept."""
