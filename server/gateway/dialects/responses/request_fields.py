"""A Responses request's fields: which are read, passed on as they are, refused, or without effect."""

from typing import Annotated, Any

import msgspec

from burnish.errors import RequestError
from burnish.server.gateway.call import JsonObject
from burnish.server.gateway.dialects.chat_fields import Common

LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"
MAX_IGNORED = 20  # they travel in a header
NULL = msgspec.Raw(b"null")


class Format(msgspec.Struct, gc=False):
    """`text.format`: `response_format` in a chat completion."""

    type: str
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class Text(msgspec.Struct, gc=False):
    """`text`."""

    format: Format | None = None
    verbosity: Any = None


class Reasoning(msgspec.Struct, gc=False):
    """`reasoning`."""

    effort: str | None = None
    summary: Any = None


class Choice(msgspec.Struct, gc=False):
    """`tool_choice` as an object. `tools` and `mode` are those of `allowed_tools`."""

    type: str
    name: str | None = None
    mode: str | None = None
    tools: "list[Choice] | None" = None


class Fields(Common):
    """All fields that Burnish reads, except `input` and `tools`."""

    instructions: str | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_tool_calls: int | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    parallel_tool_calls: bool | None = None
    tool_choice: str | Choice | None = None
    include: list[str] | None = None
    reasoning: Reasoning | None = None
    text: Text | None = None
    truncation: str | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_retention: str | None = None
    client_metadata: Any = None
    previous_response_id: Any = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None

    @property
    def wants_logprobs(self) -> bool:
        return bool(self.top_logprobs) or LOGPROBS in (self.include or ())

    @property
    def wants_encrypted(self) -> bool:
        return ENCRYPTED in (self.include or ())


def refuse(fields: Fields) -> None:
    """Raises RequestError for fields that need stored state and for those that a Response cannot hold."""
    for name, remedy in _REFUSED.items():
        if getattr(fields, name) not in (None, False):
            raise RequestError(f"{name}: not supported, {remedy}", param=name, code="unsupported")
    if (fields.n or 1) > 1:
        raise RequestError(
            "n: a response holds one reply; send the request again for another", param="n", code="unsupported"
        )


def ignored(fields: Fields, raw: JsonObject) -> list[str]:
    """The names of fields that have no effect, unknown ones included if they read like names."""
    found = [name for name in raw if name not in _KNOWN and raw[name] != NULL and _is_name(name)]
    if fields.text is not None and fields.text.verbosity is not None:
        found.append("text.verbosity")
    if fields.reasoning is not None and fields.reasoning.summary is not None:
        found.append("reasoning.summary")
    if fields.truncation == "auto":
        found.append("truncation")
    return found


def _is_name(text: str) -> bool:
    """True if `text` may stand in a header."""
    return text.isascii() and text.isidentifier() and len(text) <= 64


_HISTORY = "nothing is stored here; send the whole history in `input`"
_REFUSED = {
    "previous_response_id": _HISTORY,
    "conversation": _HISTORY,
    "background": "nothing is stored here; ask again without it, streamed if the reply may be long",
    "prompt": "nothing is stored here; send the text in `instructions` and `input`",
}
PASSED = frozenset(
    {
        *("temperature", "top_p", "seed", "stop", "presence_penalty", "frequency_penalty", "logit_bias"),
        # vLLM's own
        *("top_k", "min_p", "repetition_penalty", "length_penalty", "min_tokens", "stop_token_ids", "ignore_eos"),
        *(
            "include_stop_str_in_output",
            "skip_special_tokens",
            "spaces_between_special_tokens",
            "truncate_prompt_tokens",
        ),
        *("bad_words", "allowed_token_ids", "structured_outputs", "thinking_token_budget", "watermarking"),
        "chat_template_kwargs",
    }
)
_KNOWN = PASSED | frozenset(
    {
        *("model", "input", "instructions", "stream", "tools", "tool_choice", "parallel_tool_calls", "include", "n"),
        *("max_output_tokens", "top_logprobs", "text", "reasoning", "truncation", *_REFUSED),
        *("session_id", "conversation_id", "turn_type", "session_done", "client_metadata"),
        *("use_beam_search", "echo", "prompt_logprobs", "logprob_token_ids"),
        # repeated in the response, or without an effect that anybody could miss
        *("metadata", "user", "safety_identifier", "store", "service_tier", "stream_options"),
        *("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
    }
)
