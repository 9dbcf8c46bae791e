"""Every error that Burnish raises on purpose, as one tree.

A message says what was expected, what was found and, where there is one, the remedy. HTTP status codes are decided in
one place (`server/gateway/http/error_envelope.py`), never here.
"""


class BurnishError(Exception):
    """Root of the tree; its text is fit to be shown to the person who caused it."""


class ConfigError(BurnishError):
    """A setting is unknown, of the wrong type, or names something that does not exist."""


class RequestError(BurnishError):
    """A client's request cannot be honoured as it stands."""

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class NotAllowed(RequestError):
    """The key is missing or unknown, or its scope does not cover this route, or the origin is foreign."""


class NotFound(RequestError):
    """The model, version, agent or response that was named does not exist."""


class Conflict(RequestError):
    """The object changed since the caller looked: a compare-and-set lost."""


class EngineError(BurnishError):
    """The inference engine refused, failed or is away."""


class EngineUnavailable(EngineError):
    """No engine answers at present; `retry_after` (seconds) says when to come back."""

    def __init__(self, message: str, *, retry_after: float = 2.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RateLimited(BurnishError):
    """A key has used up its share; `retry_after` (seconds) says when it has some again."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Overloaded(EngineUnavailable):
    """This gateway process has taken on all that it may."""


class JournalError(BurnishError):
    """The journal cannot be opened, migrated or written."""


class TableError(BurnishError):
    """The serving table cannot be read. It is left as it is: a table made from nothing has no keys and no engines."""


class SegmentError(JournalError):
    """A segment's frame is torn or fails its checksum; nothing before it is affected."""


class AdapterError(BurnishError):
    """An adapter directory is incomplete, altered or of the wrong shape, or the store is another journal's."""


class Postponed(BurnishError):
    """A decision waits for something that is still to come; the text says for what."""


class LearnerError(BurnishError):
    """A training step cannot be carried out."""
