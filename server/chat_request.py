"""A chat completion's body: checked in the few fields that Burnish acts on, passed on byte for byte in all others.

What goes to the engine asks for token ids and log-probs, names the pinned version, and carries nothing that is Burnish's own
or that steers the engine itself: a client must not choose the response id (feedback joins by it), its priority, or where the
engine moves its caches.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from burnish.errors import RequestError
from burnish.records import Sampling

T = TypeVar("T")
MAX_CHOICES = 128
_DROPPED = frozenset(
    {
        *("session_id", "turn_type", "session_done"),  # OpenClaw-RL's, read here
        *("request_id", "priority", "kv_transfer_params", "ec_transfer_params", "vllm_xargs"),  # the engine's controls
    }
)
_UNSUPPORTED = {
    **dict.fromkeys(("use_beam_search", "echo"), "such replies have no log-probs to record"),
    # seen with vLLM 0.32: the first kills an engine that serves adapters, the second blanks other requests' top_logprobs
    **dict.fromkeys(("prompt_logprobs", "logprob_token_ids"), "it would disturb the requests of others"),
}
_PATH = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_TRUE = frozenset({"1", "true", "yes", "on"})
_Positive = Annotated[int, msgspec.Meta(ge=1, le=MAX_CHOICES)]
_raw_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class StreamOptions(msgspec.Struct):
    """The part of `stream_options` that changes what is passed on."""

    include_usage: bool | None = None


class Fields(msgspec.Struct):
    """The fields that Burnish reads; names, types and defaults are OpenAI's and vLLM's."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    messages: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: _Positive | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    return_token_ids: bool | None = None
    include_reasoning: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
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
    turn_type: str | None = None
    session_done: bool | str | int | None = None


_fields_decoder = msgspec.json.Decoder(Fields)


class ChatRequest:
    """One parsed body: `fields` to act on, `for_engine` to pass on."""

    def __init__(self, body: bytes) -> None:
        try:
            self.fields: Fields = _fields_decoder.decode(body)
            self._raw: dict[str, msgspec.Raw] = _raw_decoder.decode(body)
        except msgspec.ValidationError as error:
            raise explained(error) from error
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise RequestError(f"the body is not valid JSON: {error}", code="invalid_json") from error
        for position, message in enumerate(self.fields.messages):
            if not isinstance(message.get("role"), str):
                param = f"messages[{position}].role"
                raise RequestError(f"{param}: expected a string such as 'user'", param=param, code="invalid_value")
        for name, reason in _UNSUPPORTED.items():
            value = getattr(self.fields, name)
            if value is not None and value is not False:  # 0 asks for log-probs too
                raise RequestError(f"{name}: not supported, {reason}", param=name, code="unsupported")
        if self.fields.top_logprobs and not self.fields.logprobs:
            raise RequestError("top_logprobs: needs `logprobs: true`", param="top_logprobs", code="invalid_value")

    @property
    def wants_usage(self) -> bool:
        options = self.fields.stream_options
        return bool(options and options.include_usage)

    @property
    def sampling(self) -> Sampling:
        """The parameters as the engine applies them, with its defaults for those left out."""
        fields = self.fields
        return Sampling(
            temperature=_given(fields.temperature, 1.0),
            top_p=_given(fields.top_p, 1.0),
            top_k=_given(fields.top_k, 0) or -1,
            min_p=_given(fields.min_p, 0.0),
            presence_penalty=_given(fields.presence_penalty, 0.0),
            frequency_penalty=_given(fields.frequency_penalty, 0.0),
            repetition_penalty=_given(fields.repetition_penalty, 1.0),
            has_logit_bias=bool(
                fields.logit_bias or fields.bad_words or fields.allowed_token_ids or fields.min_tokens or fields.watermarking
            ),
            is_constrained=self._is_constrained,
        )

    def for_engine(self, engine_model: str) -> bytes:
        """The body to send to the engine: the client's own bytes, with our fields in place of its."""
        body = {name: value for name, value in self._raw.items() if name not in _DROPPED}
        body["model"] = msgspec.Raw(msgspec.json.encode(engine_model))
        body["return_token_ids"] = body["logprobs"] = msgspec.Raw(b"true")
        if self.fields.include_reasoning is False:  # vLLM would withhold ids and log-probs too; we strip the text ourselves
            body["include_reasoning"] = msgspec.Raw(b"true")
        return msgspec.json.encode(body)

    @property
    def _is_constrained(self) -> bool:
        """True where a grammar masks the logits; vLLM adds one for strict tools and for single calls as well."""
        fields = self.fields
        kind = (fields.response_format or {}).get("type", "text")
        if kind != "text" or fields.structured_outputs or fields.thinking_token_budget is not None:
            return True
        if any(name.startswith("guided_") for name in self._raw):
            return True
        if not fields.tools or fields.tool_choice == "none":
            return False
        is_auto = fields.tool_choice in (None, "auto")
        return not is_auto or fields.parallel_tool_calls is False or any(map(_is_strict, fields.tools))


class Labels(msgspec.Struct, frozen=True):
    """What a client says about a turn: which session, of which kind, the last one, may it be learned from."""

    session_id: str | None
    turn_type: str | None
    is_session_done: bool
    may_train: bool

    @classmethod
    def read(cls, headers: Mapping[bytes, str], fields: Fields) -> "Labels":
        """From the headers, else from their twins in the body (OpenClaw-RL's names)."""
        done = headers.get(b"x-session-done") or fields.session_done
        kind = headers.get(b"x-turn-type") or fields.turn_type
        return cls(
            session_id=headers.get(b"x-session-id") or fields.session_id or None,
            turn_type=kind.strip().lower() if kind else None,
            is_session_done=str(done).strip().lower() in _TRUE,
            may_train=headers.get(b"x-burnish-train", "true").strip().lower() not in {"false", "0", "no", "off"},
        )


def _is_strict(tool: Mapping[str, Any]) -> bool:
    function = tool.get("function")
    return isinstance(function, dict) and function.get("strict") is True


def _given(value: T | None, default: T) -> T:
    return default if value is None else value


def explained(error: msgspec.ValidationError) -> RequestError:
    """msgspec's message with the field's name in front, as OpenAI's `param`."""
    found = _PATH.match(str(error))
    assert found is not None, "the pattern matches any text"
    what, path = found["what"], (found["path"] or "").lstrip(".")
    if not path and (missing := re.search(r"missing required field `(\w+)`", what)):
        path = missing[1]
    return RequestError(f"{path or 'body'}: {what}", param=path or None, code="invalid_value")
