"""The Response object: the request's fields repeated, and the result."""

import time
from typing import Any

from burnish.server.gateway.call import JsonObject
from burnish.server.gateway.dialects.responses.request_fields import NULL, Fields
from burnish.wire.chunks import Usage

Tree = dict[str, Any]
_ENDS = {  # finish_reason -> status, incomplete_details
    "length": ("incomplete", {"reason": "max_output_tokens"}),
    "content_filter": ("incomplete", {"reason": "content_filter"}),
    "abort": ("failed", None),
    "error": ("failed", None),
}


class Echo:
    """The fields that repeat the request's. They are made once and written into every Response of the request."""

    def __init__(self, fields: Fields, raw: JsonObject) -> None:
        metadata = fields.metadata if isinstance(fields.metadata, dict) else {}
        self._tree: Tree = {
            "background": False,
            "instructions": fields.instructions,
            "max_output_tokens": fields.max_output_tokens,
            "max_tool_calls": fields.max_tool_calls,
            "metadata": metadata,
            "parallel_tool_calls": fields.parallel_tool_calls is not False,
            "previous_response_id": None,
            "prompt_cache_key": fields.prompt_cache_key,
            "prompt_cache_retention": fields.prompt_cache_retention,
            "reasoning": _given(raw, "reasoning", {"effort": None, "summary": None}),
            "safety_identifier": fields.safety_identifier,
            "service_tier": "default",
            "store": False,
            "temperature": 1.0 if fields.temperature is None else fields.temperature,
            "text": _given(raw, "text", {"format": {"type": "text"}}),
            "tool_choice": _given(raw, "tool_choice", "auto"),
            "tools": _given(raw, "tools", []),
            "top_logprobs": fields.top_logprobs or 0,
            "top_p": 1.0 if fields.top_p is None else fields.top_p,
            "truncation": "disabled",
            "user": fields.user,
        }

    def response(
        self,
        response_id: str,
        model: str,
        created_at: int,
        status: str,
        output: list[Tree],
        *,
        incomplete: Tree | None = None,
        error: Tree | None = None,
        usage: Tree | None = None,
    ) -> Tree:
        """The Response in its present state."""
        return {
            "id": response_id,
            "object": "response",
            "created_at": created_at,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "error": error,
            "incomplete_details": incomplete,
            "model": model,
            "output": output,
            "usage": usage,
            **self._tree,
        }


def end_of(finish_reason: str | None) -> tuple[str, Tree | None]:
    """The status and `incomplete_details` for a reply's finish_reason."""
    return _ENDS.get(finish_reason or "", ("completed", None))


def usage_of(usage: Usage | None) -> Tree | None:
    """The engine's counts under their Responses names."""
    if usage is None:
        return None
    n_output = usage.completion_tokens or 0
    cached = usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens
    reasoning = usage.completion_tokens_details and usage.completion_tokens_details.reasoning_tokens
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": cached or 0, "cache_write_tokens": 0},
        "output_tokens": n_output,
        "output_tokens_details": {"reasoning_tokens": reasoning or 0},
        "total_tokens": usage.prompt_tokens + n_output,
    }


def _given(raw: JsonObject, name: str, default: object) -> object:
    value = raw.get(name, NULL)
    return default if value == NULL else value
