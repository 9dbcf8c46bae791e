"""The fields of a chat completion that may reach a remote model: an allow-list of OpenAI's own.

litellm takes the request's fields and its own settings (addresses, keys, headers, prices, mocks) as arguments of one
function. A field that is not listed here never reaches it. The gateway leaves such fields out and names them to the
client. The process that calls litellm leaves them out again.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from burnish.errors import RequestError

T = TypeVar("T")
FIELDS = frozenset(
    {
        *("messages", "stream", "stream_options", "n", "user", "safety_identifier"),
        *("max_tokens", "max_completion_tokens", "stop", "seed", "temperature", "top_p"),
        *("presence_penalty", "frequency_penalty", "logit_bias"),
        *("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "web_search_options"),
        *("response_format", "reasoning_effort", "verbosity", "modalities", "audio", "prediction"),
        *("prompt_cache_key", "prompt_cache_retention", "service_tier", "store"),
    }
)
"""`logprobs` and `top_logprobs` are left out, because such replies are never trained on and few vendors give them.
`metadata` is left out, because litellm reads settings of its own from it.
"""
TOOL_TYPES = frozenset({"function", "custom"})
MAX_NAMED = 16
_OURS = frozenset({"return_token_ids", "logprobs", "include_reasoning", "metadata", "conversation_id"})
"""Fields that the gateway adds or reads itself. Nothing is lost if they go no further."""
_NAME = re.compile(r"[\w.:-]{1,64}", re.ASCII)


def kept(body: Mapping[str, T]) -> dict[str, T]:
    """The fields of `body` that may be passed on."""
    return {name: value for name, value in body.items() if name in FIELDS}


def left_out(names: Collection[str]) -> tuple[str, ...]:
    """The `names` of a body's fields that have no effect on a remote model, at most `MAX_NAMED`. They fit into a
    header.
    """
    lost = (name for name in names if name not in FIELDS and name not in _OURS and _NAME.fullmatch(name))
    return tuple(lost)[:MAX_NAMED]


def check_tools(tools: Any) -> None:
    """Raises RequestError for a tool that the client does not run itself: litellm would connect to the server that it
    names.
    """
    for place, tool in enumerate(tools or ()):
        kind = tool.get("type", "function") if isinstance(tool, Mapping) else None
        if kind not in TOOL_TYPES:
            name = f"tools[{place}].type"
            raise RequestError(
                f"{name}: got {kind!r}, expected one of {sorted(TOOL_TYPES)}", param=name, code="unsupported"
            )
