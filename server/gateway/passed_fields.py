"""Which fields of a body go on, and where to: an allow-list for each route of the engine and one for a remote model.

vLLM and litellm take their own controls as fields beside the request's: addresses, keys, headers, mocks, priorities,
cache transfers, tensors to load, templates to execute. Each release adds some. A field that is not listed here never
reaches them. The gateway leaves it out and names it to the client: clients send fields that one server knows and the
next does not, so refusing them would break clients. The process that calls litellm leaves them out again, and those of
messages, parts and tools.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from burnish.errors import RequestError
from burnish.server.gateway.dialects import media

T = TypeVar("T")
_SAMPLED = frozenset(
    {
        *("n", "stream", "stream_options", "max_tokens", "stop", "seed", "temperature", "top_p"),
        *("presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "response_format"),
        # vLLM's own
        *("top_k", "min_p", "repetition_penalty", "length_penalty", "min_tokens", "stop_token_ids", "ignore_eos"),
        *("bad_words", "allowed_token_ids", "structured_outputs", "thinking_token_budget", "watermarking"),
        *("include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens"),
        *("add_special_tokens", "truncate_prompt_tokens", "truncation_side"),
        *("return_token_ids", "return_tokens_as_token_ids"),
    }
)
ENGINE: Mapping[str, frozenset[str]] = {
    "/v1/chat/completions": _SAMPLED
    | {
        *("messages", "max_completion_tokens", "top_logprobs", "reasoning_effort", "include_reasoning"),
        *("tools", "tool_choice", "parallel_tool_calls"),
        *("chat_template_kwargs", "documents", "add_generation_prompt", "continue_final_message"),
    },
    "/v1/completions": _SAMPLED | {"prompt"},
    "/v1/embeddings": frozenset({"input", "encoding_format", "dimensions", "truncate_prompt_tokens"}),
}
"""By the engine's route, without `model`, which the gateway sets."""
REMOTE = frozenset(
    {
        *("messages", "stream", "stream_options", "n", "user", "safety_identifier"),
        *("max_tokens", "max_completion_tokens", "stop", "seed", "temperature", "top_p"),
        *("presence_penalty", "frequency_penalty", "logit_bias"),
        *("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "web_search_options"),
        *("response_format", "reasoning_effort", "verbosity", "modalities", "audio", "prediction"),
        *("prompt_cache_key", "prompt_cache_retention", "service_tier", "store"),
    }
)
"""OpenAI's own fields of a chat completion. `logprobs` and `top_logprobs` are left out, because such replies are never
trained on and few vendors give them. `metadata` is left out, because litellm reads settings of its own from it.
"""
TOOL_TYPES = frozenset({"function", "custom"})
_MESSAGE = frozenset(
    {
        *("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "function_call"),
        *("reasoning_content", "audio"),
    }
)
_PART = frozenset({"type", "text", "refusal", "thinking", "signature", "cache_control"}) | {
    *media.Part.__struct_fields__  # none of them holds an address (server/gateway/dialects/media.py)
}
_TOOL = TOOL_TYPES | {"type", "cache_control"}
MAX_NAMED = 16
_UNMISSED = frozenset(
    {
        # read by the gateway
        *("model", "user", "metadata", "session_id", "conversation_id", "turn_type", "session_done"),
        # without an effect that anybody could miss
        *("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "store", "service_tier"),
        # refused unless they are off
        *("use_beam_search", "echo", "prompt_logprobs", "logprob_token_ids", "suffix", "best_of"),
    }
)
_KNOWN = {path: allowed | _UNMISSED for path, allowed in ENGINE.items()}
_KNOWN_AFAR = REMOTE | _UNMISSED | {"return_token_ids", "logprobs", "include_reasoning"}
_NAME = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_NULL = msgspec.Raw(b"null")


def for_engine(path: str, body: Mapping[str, msgspec.Raw]) -> tuple[dict[str, msgspec.Raw], tuple[str, ...]]:
    """What may go to the engine's route `path`, and the names of fields that have no effect there."""
    return kept(body, ENGINE[path]), _left_out(body, _KNOWN[path])


def for_remote(body: Mapping[str, msgspec.Raw]) -> tuple[dict[str, msgspec.Raw], tuple[str, ...]]:
    """What may go to a remote model, and the names of fields that have no effect on it."""
    return kept(body, REMOTE), _left_out(body, _KNOWN_AFAR)


def kept(body: Mapping[str, T], allowed: frozenset[str]) -> dict[str, T]:
    """The `allowed` fields of `body`."""
    return {name: value for name, value in body.items() if name in allowed}


def kept_within(body: Mapping[str, Any]) -> dict[str, Any]:
    """What may go to a remote model of a whole body: listed fields of the body, and of its messages, their parts and
    tools. litellm fetches addresses from other fields of a message for some vendors.

    Raises RequestError for a tool that the client does not run itself: litellm would connect to the server that it
    names.
    """
    found = kept(body, REMOTE)
    _check_tools(found.get("tools"))
    if isinstance(messages := found.get("messages"), list):
        found["messages"] = [_message(each) for each in messages]
    if tools := found.get("tools"):
        found["tools"] = [kept(tool, _TOOL) for tool in tools]
    return found


def _message(message: Any) -> Any:
    if not isinstance(message, Mapping):
        return message
    found = kept(message, _MESSAGE)
    if isinstance(parts := found.get("content"), list):
        found["content"] = [kept(part, _PART) if isinstance(part, Mapping) else part for part in parts]
    return found


def _check_tools(tools: Any) -> None:
    for place, tool in enumerate(tools or ()):
        kind = tool.get("type", "function") if isinstance(tool, Mapping) else None
        if kind not in TOOL_TYPES or not isinstance(tool.get(kind), Mapping):
            name = f"tools[{place}].type"
            raise RequestError(
                f"{name}: got {kind!r}, expected one of {sorted(TOOL_TYPES)}, with its definition",
                param=name,
                code="unsupported",
            )


def _left_out(body: Mapping[str, msgspec.Raw], known: frozenset[str]) -> tuple[str, ...]:
    """The names that are not `known`, at most `MAX_NAMED`. They fit into a header."""
    if known.issuperset(body):
        return ()
    lost = (name for name, value in body.items() if name not in known and value != _NULL and _NAME.fullmatch(name))
    return tuple(lost)[:MAX_NAMED]
