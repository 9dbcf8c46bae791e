"""Feedback in a body, alone or in a batch: which fields there are and how large they may be.

The key decides whose feedback it is, never the body. The feedback scope speaks for a user. A key that may only talk
speaks for the harness; its feedback is stored and is never a reward. A verifier's feedback (tests, exit codes) needs an
operator's key.
"""

from typing import Annotated, Any, TypeVar

import msgspec

from burnish.errors import RequestError
from burnish.records import FeedbackSource, TargetKind
from burnish.server.gateway.dialects.chat_fields import explained

T = TypeVar("T")
MAX_BATCH = 1000
MAX_NAME = 512
MAX_CHARACTERS = {"comment": 20_000, "correction": 100_000, "demonstration": 100_000, "label": 256}
_THUMBS = {"up": 1.0, "down": -1.0, True: 1.0, False: -1.0}
_OUTCOMES = {True: 1.0, False: -1.0}
_KINDS = tuple(kind.value for kind in TargetKind)
_SAID = ("rating", "score", "outcome", "comment", "correction", "demonstration")


def _text(field: str) -> Any:
    """The type of a text field. Its length is checked by hand, because msgspec does not report the value that it
    got."""
    return Annotated[str, msgspec.Meta(extra_json_schema={"maxLength": MAX_CHARACTERS[field]})]


Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
About = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(_KINDS)})]
_Source = Annotated[str, msgspec.Meta(extra_json_schema={"enum": [FeedbackSource.VERIFIER.value]})]
_Score = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Opinion(msgspec.Struct, forbid_unknown_fields=True):
    """The body. It says at least one thing."""

    target: Name
    about: About = TargetKind.RESPONSE.value
    rating: str | bool | float | None = None
    score: _Score | None = None
    outcome: bool | float | None = None
    label: _text("label") | None = None  # type: ignore[valid-type]
    comment: _text("comment") | None = None  # type: ignore[valid-type]
    correction: _text("correction") | None = None  # type: ignore[valid-type]
    demonstration: _text("demonstration") | None = None  # type: ignore[valid-type]
    source: _Source | None = None
    id: Id | None = None


class Opinions(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a batch. All of it is checked before any of it is written."""

    feedback: Annotated[list[Opinion], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


def parse(body: bytes) -> Opinion:
    """The feedback in `body`. Raises RequestError with the name of the field at fault."""
    opinion = decoded(_decoder, body)
    _check(opinion, "")
    return opinion


def parse_batch(body: bytes) -> list[Opinion]:
    """The feedback in `body`. Raises RequestError with the place at fault, such as `feedback[3].rating`."""
    opinions = decoded(_batch_decoder, body)
    for number, opinion in enumerate(opinions.feedback):
        _check(opinion, f"feedback[{number}].")
    return opinions.feedback


def decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """`body` as `decoder` reads it. Raises RequestError."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise explained(error) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is not valid JSON: {error}", code="invalid_json") from error


def kind_of(about: str, place: str = "about") -> TargetKind:
    """The target of feedback. Raises RequestError for an unknown word."""
    if about not in _KINDS:
        raise _wrong(place, f"got {about!r}, expected 'response', 'turn' or 'session'")
    return TargetKind(about)


def rating_of(given: Any, place: str = "rating") -> float | None:
    """A rating in [-1, 1]: thumbs as words or booleans, or the number itself."""
    return _number(given, _THUMBS, place, "'up', 'down' or a number in [-1, 1]")


def outcome_of(given: Any, place: str = "outcome") -> float | None:
    """An outcome in [-1, 1]: whether the goal was reached, or how far."""
    return _number(given, _OUTCOMES, place, "true, false or a number in [-1, 1]")


def _number(given: Any, words: dict[Any, float], place: str, expected: str) -> float | None:
    if given is None or (isinstance(given, float | int) and not isinstance(given, bool) and -1.0 <= given <= 1.0):
        return None if given is None else float(given)
    if isinstance(given, str | bool) and given in words:
        return words[given]
    raise _wrong(place, f"got {given if isinstance(given, float) else repr(given)[:80]}, expected {expected}")


def _check(opinion: Opinion, place: str) -> None:
    kind_of(opinion.about, f"{place}about")
    if opinion.source is not None and opinion.source != FeedbackSource.VERIFIER:
        raise _wrong(
            f"{place}source",
            f"got {opinion.source[:80]!r}, expected 'verifier' or nothing: the key says who else speaks",
        )
    for field, most in MAX_CHARACTERS.items():
        text = getattr(opinion, field)
        if text is not None and len(text) > most:
            raise _wrong(place + field, f"got {len(text):,} characters, expected at most {most:,}")
    if opinion.label is not None and opinion.outcome is None:
        raise _wrong(f"{place}label", "it names an outcome, and there is none; expected `outcome` beside it")
    if all(getattr(opinion, field) in (None, "") for field in _SAID):
        what = f"{place.removesuffix('.')}: " if place else ""
        raise RequestError(f"{what}nothing said: expected at least one of {', '.join(_SAID)}", code="invalid_value")
    rating_of(opinion.rating, f"{place}rating")
    outcome_of(opinion.outcome, f"{place}outcome")


def _wrong(place: str, what: str) -> RequestError:
    return RequestError(f"{place}: {what}", param=place, code="invalid_value")


_decoder = msgspec.json.Decoder(Opinion)
_batch_decoder = msgspec.json.Decoder(Opinions)
