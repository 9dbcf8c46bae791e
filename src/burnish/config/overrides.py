"""An agent's own settings: dotted keys laid over the configuration, checked before they are stored."""

from collections.abc import Mapping
from typing import Any

from burnish.config import Settings, for_agent
from burnish.errors import ConfigError, RequestError

SECTIONS = ("learner", "gate", "canary", "versions")
"""What an agent may have its own of."""
SHARED = frozenset({"learner.enabled", "learner.device", "learner.threads"})
"""Settings of a process, which works for all agents."""


def laid_over(settings: Settings, overlay: Mapping[str, object]) -> Settings:
    """`settings` as the agent with this `overlay` has them; raises RequestError for a key or a value that cannot be."""
    for key in overlay:
        if key.partition(".")[0] not in SECTIONS or "." not in key:
            own = ", ".join(f"{section}.…" for section in SECTIONS)
            raise RequestError(
                f"setting {key!r} is not an agent's own; those are {own}", param=key, code="invalid_value"
            )
        if key in SHARED:
            raise RequestError(
                f"setting {key!r} is the same for all agents; set it in burnish.toml", param=key, code="invalid_value"
            )
    try:
        return for_agent(settings, overlay)
    except ConfigError as error:
        raise RequestError(str(error), param="settings", code="invalid_value") from error


def checked(settings: Settings, overlay: Mapping[str, object]) -> dict[str, Any]:
    """`overlay` with its values as the configuration understands them (a number in a text is a number)."""
    tree = laid_over(settings, overlay).model_dump(mode="json")
    found: dict[str, Any] = {}
    for key in overlay:
        value: Any = tree
        for part in key.split("."):
            value = value[part]
        found[key] = value
    return found
