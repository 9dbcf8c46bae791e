"""The `local_shell` tool, which the client runs: the function that the engine gets, and the calls in both forms."""

import json
from typing import Any

NAME = "local_shell"
_STRINGS = {"type": "array", "items": {"type": "string"}}
FUNCTION: dict[str, Any] = {
    "name": NAME,
    "description": "Runs a command in the user's shell and gives back what it prints.",
    "parameters": {
        "type": "object",
        "properties": {
            "command": _STRINGS | {"description": "The program and its arguments."},
            "working_directory": {"type": "string"},
            "timeout_ms": {"type": "integer"},
            "env": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["command"],
    },
}


def action_of(arguments: str) -> dict[str, Any]:
    """A call's `action`. Arguments that are no command give an empty one, which a shell refuses."""
    try:
        tree = json.loads(arguments)
    except (ValueError, RecursionError):
        tree = None
    given = tree if isinstance(tree, dict) else {}
    command = given.get("command")
    is_command = isinstance(command, list) and all(isinstance(word, str) for word in command)
    return {**given, "type": "exec", "command": command if is_command else [], "env": given.get("env") or {}}


def arguments_of(action: dict[str, Any]) -> str:
    """The function's arguments that represent `action`, without the parts that action_of added."""
    given = {name: value for name, value in action.items() if name != "type" and value not in (None, {})}
    return json.dumps(given, ensure_ascii=False)
