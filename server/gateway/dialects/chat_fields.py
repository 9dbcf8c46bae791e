"""A chat completion's fields: Burnish checks those that it acts on. server/gateway/passed_fields.py says which others
go on, byte for byte.

The engine's request asks for token ids and log-probs. It carries nothing that is Burnish's own or that steers the
engine: a client must not choose the response id (feedback joins by it), its priority, or where the engine moves its
caches.
"""

import re
from collections.abc import Collection
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, TypeVar

import msgspec

from burnish.errors import RequestError
from burnish.records import Sampling
from burnish.server.gateway.call import NO_BODY_LABELS, BodyLabels, JsonObject

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
MAX_CHOICES = 128
"""Replies to one request: for each prompt, as many as it asks for."""
MAX_FIELDS = 4096
MAX_MESSAGES = 10_000
"""Messages of a request, and parts of a message."""
MAX_TOOLS = 1024
MAX_SCHEMA = 131_072
"""Bytes of JSON that an engine makes a grammar from. A long one takes it seconds, and other requests wait."""
TRUE = msgspec.Raw(b"true")
NULL = msgspec.Raw(b"null")
_UNSUPPORTED = {
    **dict.fromkeys(("use_beam_search", "echo"), "such replies have no log-probs to record"),
    # seen with vLLM 0.32: the first ends an engine that serves adapters, the second blanks other requests' top_logprobs
    **dict.fromkeys(("prompt_logprobs", "logprob_token_ids"), "it would disturb the requests of others"),
}
_PATH = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_Positive = Annotated[int, msgspec.Meta(ge=1, le=MAX_CHOICES)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Regex = Annotated[str, msgspec.Meta(max_length=4096)]
_Grammar = Annotated[str, msgspec.Meta(max_length=65_536)]


class StreamOptions(msgspec.Struct, omit_defaults=True):
    """The part of `stream_options` that is passed on."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class StructuredOutputs(msgspec.Struct, forbid_unknown_fields=True):
    """vLLM's grammars. All of them together have at most `MAX_SCHEMA` bytes."""

    json: dict[str, Any] | str | None = None
    regex: _Regex | None = None
    choice: Annotated[list[_Regex], msgspec.Meta(max_length=1024)] | None = None
    grammar: _Grammar | None = None
    json_object: bool | None = None
    structural_tag: _Grammar | None = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None
    whitespace_pattern: _Regex | None = None


class Common(msgspec.Struct):
    """The fields that chat and text completions share. Names, types and defaults are OpenAI's and vLLM's."""

    model: _Name
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: _Positive | None = None
    return_token_ids: bool | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: StructuredOutputs | None = None
    thinking_token_budget: Any = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    bad_words: list[str] | None = None
    allowed_token_ids: list[int] | None = None
    min_tokens: int | None = None
    watermarking: Any = None
    use_beam_search: bool | None = None
    echo: bool | None = None
    prompt_logprobs: Any = None
    logprob_token_ids: Any = None
    user: str | None = None
    session_id: str | None = None
    conversation_id: str | None = None
    prompt_cache_key: str | None = None
    metadata: Any = None
    turn_type: str | None = None
    session_done: bool | str | int | None = None

    @property
    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


def parse(body: bytes, kind: type[S], big: Collection[str]) -> tuple[S, JsonObject]:
    """As `decoded`, without the fields that would cost a reply its log-probs or disturb other requests."""
    fields, raw = decoded(body, kind, big)
    refuse_unsupported(fields)
    for name in ("response_format", "structured_outputs"):
        if name in raw:
            check_schema(name, raw[name])
    return fields, raw


def decoded(body: bytes, kind: type[S], big: Collection[str]) -> tuple[S, JsonObject]:
    """The typed fields, and all fields as JSON text. The caller checks those in `big`.

    Large fields are scanned apart from the small ones, so that each byte of a body is read only as often as needed.
    """
    try:
        raw: JsonObject = _raw_decoder.decode(body)
        check_fields(raw)
        small = {name: value for name, value in raw.items() if name not in big}
        fields = _decoder_of(kind).decode(msgspec.json.encode(small))
    except msgspec.ValidationError as error:
        raise explained(error) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is not valid JSON: {error}", code="invalid_json") from error
    return fields, raw


def check_fields(raw: JsonObject) -> None:
    """Raises RequestError for a body of too many fields."""
    if len(raw) > MAX_FIELDS:
        raise RequestError(f"the body has {len(raw):,} fields, expected at most {MAX_FIELDS:,}", code="invalid_value")


def check_schema(name: str, value: msgspec.Raw) -> None:
    """Raises RequestError if the JSON text of the field is longer than a grammar may be."""
    if (size := len(value)) > MAX_SCHEMA:
        what = f"{name}: got {size:,} bytes, expected at most {MAX_SCHEMA:,}: the engine would take too long over it"
        raise RequestError(what, param=name, code="invalid_value")


def check(name: str, value: msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """The decoded value of the field `name`. Raises RequestError with the place at fault."""
    try:
        return decoder.decode(value)
    except msgspec.ValidationError as error:
        raise explained(error, name) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RequestError(f"{name}: not valid JSON: {error}", param=name, code="invalid_json") from error


def refuse_unsupported(fields: Any) -> None:
    """Raises RequestError for a field that would cost a reply its log-probs or disturb other requests."""
    if _unsupported_of(fields) == _NONE_UNSUPPORTED:
        return
    for name, reason in _UNSUPPORTED.items():
        value = getattr(fields, name)
        if value is not None and value is not False:  # 0 asks for log-probs too
            raise RequestError(f"{name}: not supported, {reason}", param=name, code="unsupported")


def sampling_of(fields: Common, *, is_constrained: bool) -> Sampling:
    """The sampling parameters as the engine applies them, with its defaults for those left out."""
    if not is_constrained and _sampling_fields(fields) == _ALL_DEFAULT:
        return _DEFAULT_SAMPLING
    return Sampling(
        temperature=_given(fields.temperature, 1.0),
        top_p=_given(fields.top_p, 1.0),
        top_k=_given(fields.top_k, 0) or -1,
        min_p=_given(fields.min_p, 0.0),
        presence_penalty=_given(fields.presence_penalty, 0.0),
        frequency_penalty=_given(fields.frequency_penalty, 0.0),
        repetition_penalty=_given(fields.repetition_penalty, 1.0),
        has_logit_bias=bool(
            fields.logit_bias
            or fields.bad_words
            or fields.allowed_token_ids
            or fields.min_tokens
            or fields.watermarking
        ),
        is_constrained=is_constrained,
    )


def is_grammar(fields: Common) -> bool:
    """True if a grammar masks the logits, whatever the tools are."""
    kind = (fields.response_format or {}).get("type", "text")
    return kind != "text" or fields.structured_outputs is not None or fields.thinking_token_budget is not None


def recorded(raw: JsonObject, fields: Common, logprobs: msgspec.Raw) -> JsonObject:
    """The client's fields `raw` and what the record needs: token ids and log-probs."""
    body = {**raw, "return_token_ids": TRUE, "logprobs": logprobs}
    if fields.stream_options is not None:
        body["stream_options"] = msgspec.Raw(msgspec.json.encode(fields.stream_options))
    return body


def said_of(fields: Common) -> BodyLabels:
    """What the body says about its conversation. `user` names a person, not a conversation, and is kept apart."""
    metadata = fields.metadata if isinstance(fields.metadata, dict) else {}
    if not (metadata or fields.session_id or fields.conversation_id or fields.prompt_cache_key):
        if fields.turn_type is None and fields.session_done is None:
            return NO_BODY_LABELS
        return BodyLabels(None, None, fields.turn_type, fields.session_done)
    places = (
        ("session_id", fields.session_id),
        ("conversation_id", fields.conversation_id),
        ("metadata.session_id", metadata.get("session_id")),
        ("metadata.conversation_id", metadata.get("conversation_id")),
        ("metadata.thread_id", metadata.get("thread_id")),
        ("prompt_cache_key", fields.prompt_cache_key),
    )
    for name, value in places:
        if isinstance(value, str) and value:
            return BodyLabels(value, name, fields.turn_type, fields.session_done)
    return BodyLabels(None, None, fields.turn_type, fields.session_done)


def explained(error: msgspec.ValidationError, field: str = "") -> RequestError:
    """msgspec's message with the field's name in front, as OpenAI's `param`."""
    found = _PATH.match(str(error))
    assert found is not None, "the pattern matches any text"
    what, path = found["what"], (field + (found["path"] or "")).lstrip(".")
    if missing := re.search(r"missing required field `(\w+)`", what):
        path = f"{path}.{missing[1]}".lstrip(".")
    return RequestError(f"{path or 'body'}: {what}", param=path or None, code="invalid_value")


_SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("logit_bias", "bad_words", "allowed_token_ids", "min_tokens", "watermarking"),
)
_sampling_fields = attrgetter(*_SAMPLING)
_ALL_DEFAULT = (None,) * len(_SAMPLING)
_DEFAULT_SAMPLING = Sampling()
_NONE_UNSUPPORTED = (None,) * len(_UNSUPPORTED)
_unsupported_of = attrgetter(*_UNSUPPORTED)
_raw_decoder = msgspec.json.Decoder(JsonObject)


@lru_cache
def _decoder_of(kind: type[S]) -> "msgspec.json.Decoder[S]":
    return msgspec.json.Decoder(kind)


def _given(value: T | None, default: T) -> T:
    return default if value is None else value
