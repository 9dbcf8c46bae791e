"""`tools` and `tool_choice` as a chat completion has them."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec

from burnish.errors import RequestError
from burnish.server.gateway.dialects.messages.blocks import ABSENT, required

_Name = Annotated[str, msgspec.Meta(min_length=1)]


class Tool(msgspec.Struct, gc=False):
    """A tool of the client's own or, with another `type` than `custom`, one that Anthropic defines or runs."""

    name: _Name | None = None
    type: str | None = None
    description: str | None = None
    input_schema: msgspec.Raw = ABSENT
    strict: bool | None = None


class ToolChoice(msgspec.Struct, gc=False):
    """Which tools the reply may or must use."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


def functions(tools: Sequence[Tool], ignore: Callable[[str], None]) -> list[dict[str, Any]]:
    """The client's own tools. The model knows none of Anthropic's, so `ignore` is called with their types."""
    found = []
    for at, tool in enumerate(tools):
        if tool.type in (None, "custom"):
            found.append(_function(tool, f"tools[{at}]"))
        else:
            ignore(f"tools.{tool.type}")
    return found


def chosen(given: ToolChoice, tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The fields `tool_choice` and `parallel_tool_calls`. Empty if there is no tool to choose."""
    if given.type == "tool":
        name = required(given.name, "tool_choice.name")
        if all(tool["function"]["name"] != name for tool in tools):
            raise RequestError(
                f"tool_choice.name: no tool {name!r} in `tools`", param="tool_choice.name", code="invalid_value"
            )
        wanted: Any = {"type": "function", "function": {"name": name}}
    elif given.type == "any":
        if not tools:
            raise RequestError("tool_choice: needs `tools`", param="tool_choice", code="invalid_value")
        wanted = "required"
    else:
        wanted = given.type
    if not tools:
        return {}
    return {"tool_choice": wanted} | ({"parallel_tool_calls": False} if given.disable_parallel_tool_use else {})


def _function(tool: Tool, place: str) -> dict[str, Any]:
    function: dict[str, Any] = {"name": required(tool.name, f"{place}.name")}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.input_schema == ABSENT:
        required(None, f"{place}.input_schema")
    if not bytes(tool.input_schema).startswith(b"{"):
        raise RequestError(
            f"{place}.input_schema: expected an object", param=f"{place}.input_schema", code="invalid_value"
        )
    function["parameters"] = tool.input_schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}
