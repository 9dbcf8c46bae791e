"""Tools and `tool_choice` in chat form for the engine, and the kind of each name for the way back.

Only functions reach the engine. A custom tool is a function with one text argument. Tools that OpenAI runs on its
servers cannot run here: they are left out, and a choice that forces one is refused.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from burnish.errors import RequestError
from burnish.server.gateway.dialects.responses import custom_tools, local_shell
from burnish.server.gateway.dialects.responses.request_fields import Choice

Tree = dict[str, Any]
_TYPE = re.compile(r"[a-z0-9_]{1,64}")


class Kind(StrEnum):
    """The type of item that a call to a tool becomes."""

    FUNCTION = "function_call"
    CUSTOM = "custom_tool_call"
    SHELL = "local_shell_call"


class Grammar(msgspec.Struct, gc=False):
    """A custom tool's `format`."""

    type: str | None = None
    syntax: str | None = None
    definition: str | None = None


class Tool(msgspec.Struct, gc=False):
    """One element of `tools`, as far as it is read."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: Grammar | None = None


@dataclass(slots=True)
class Toolbox:
    """The engine's `tools` (`chat`) and `tool_choice` (`choice`), both absent if empty. `kinds` maps a tool's name to
    its kind.
    """

    chat: list[Tree] = field(default_factory=list)
    choice: str | Tree | None = None
    kinds: dict[str, Kind] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)


def toolbox_of(tools: list[Tool], choice: str | Choice | None) -> Toolbox:
    """The engine's `tools` and `tool_choice`. Raises RequestError with the name of the field at fault."""
    box = Toolbox()
    free: set[str] = set()
    for position, tool in enumerate(tools):
        if not _TYPE.fullmatch(tool.type):
            raise _wrong(f"tools[{position}].type", "expected the name of a tool's type")
        if function := _function(tool, f"tools[{position}]"):
            box.chat.append({"type": "function", "function": function})
            box.kinds[function["name"]] = _KINDS[tool.type]
            free |= {function["name"]} if tool.strict is False else set()
        else:
            box.ignored.append(f"tools.{tool.type}")
    if isinstance(choice, Choice) and choice.type == "allowed_tools":
        names = {_name_of(allowed, f"tool_choice.tools[{at}]") for at, allowed in enumerate(choice.tools or ())}
        box.chat = [tool for tool in box.chat if tool["function"]["name"] in names]
        choice = choice.mode or "auto"
    box.choice = _choice(choice, box)
    # otherwise a forced tool is made strict (server/gateway/dialects/chat.py)
    if box.choice not in (None, "auto", "none"):
        box.chat = [_freed(tool) if tool["function"]["name"] in free else tool for tool in box.chat]
    return box


def _freed(tool: Tree) -> Tree:
    return {**tool, "function": {**tool["function"], "strict": False}}


def _function(tool: Tool, place: str) -> Tree | None:
    """The chat function for `tool`. None if Burnish cannot offer the tool."""
    if tool.type == "local_shell":
        return local_shell.FUNCTION
    if tool.type not in _KINDS:
        return None
    if not tool.name:
        raise _wrong(f"{place}.name", "missing required field `name`")
    function: Tree = {"name": tool.name}
    if tool.type == "custom":
        if description := _described(tool):
            function["description"] = description
        return function | {"parameters": custom_tools.PARAMETERS}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = tool.parameters
    if (
        tool.strict
    ):  # false is passed on only if a tool is forced: otherwise it means the same and would change the prompt
        function["strict"] = True
    return function


def _described(tool: Tool) -> str:
    """A custom tool's description. The model is told its grammar; nothing more can be done with it here."""
    parts = [tool.description or ""]
    if tool.format is not None and tool.format.definition:
        parts.append(f"The input follows this {tool.format.syntax or ''} grammar:\n{tool.format.definition}")
    return "\n\n".join(text for text in parts if text)


def _choice(choice: str | Choice | None, box: Toolbox) -> str | Tree | None:
    if choice is None or choice in ("auto", "none"):
        return choice if box.chat else None
    if choice == "required":
        if not box.chat:
            raise _wrong("tool_choice", "needs at least one tool that can be called here", code="unsupported")
        return choice
    if isinstance(choice, str):
        raise _wrong("tool_choice", f"expected auto, none, required or an object, got {choice!r}")
    name = _name_of(choice, "tool_choice")
    if name not in box.kinds:
        raise _wrong("tool_choice", f"there is no tool {name!r} in `tools`")
    return {"type": "function", "function": {"name": name}}


def _name_of(choice: Choice, place: str) -> str:
    """The function by which the engine knows the named tool."""
    if choice.type == "local_shell":
        return local_shell.NAME
    if choice.type not in _KINDS:
        if place == "tool_choice":
            raise _wrong(place, f"a tool of type {choice.type!r} cannot be run here", code="unsupported")
        return ""  # one of several tools that may be called; the others remain
    if not choice.name:
        raise _wrong(f"{place}.name", "missing required field `name`")
    return choice.name


def _wrong(param: str, what: str, code: str = "invalid_value") -> RequestError:
    return RequestError(f"{param}: {what}", param=param, code=code)


_KINDS = {"function": Kind.FUNCTION, "custom": Kind.CUSTOM, "local_shell": Kind.SHELL}
