"""An agent's own settings: dotted keys merged over the configuration, checked before they are stored."""

from collections.abc import Mapping
from typing import Any

from burnish.config import Recipe, Settings, for_agent
from burnish.errors import ConfigError, RequestError

SECTIONS = ("learner", "gate", "canary", "versions")
"""The sections that an agent may override."""
SHARED = frozenset(
    {
        *("learner.enabled", "learner.device", "learner.threads"),
        *("learner.recipe.seed", "learner.recipe.micro_tokens", "learner.recipe.checkpointing"),
    }
)
"""Settings of the process, which all agents share. The last three decide how much memory it takes."""
COSTLY = (
    *("num_iterations", "min_rows", "max_rows", "anchor_rows", "replay_rows", "audit_rows"),
    *("max_groups", "group_size", "group_max_tokens", "n_examples", "n_liked_replies", "distill_top_k"),
)
MOST_TIMES = 4
"""An agent's step may have so many times the server's of what is `COSTLY`: one process takes the steps of all."""
FILES = frozenset({"learner.anchors", "gate.forgetting_prompts", "gate.acceptance_prompts"})
"""Files of the server's machine, which no agent's operator may name."""


def laid_over(settings: Settings, overlay: Mapping[str, object]) -> Settings:
    """`settings` with this agent's `overlay`. Raises RequestError for a key or a value that is not allowed.

    Stored settings pass through here again when they are used, because an earlier release or the server's own
    configuration may have allowed others.
    """
    for key in overlay:
        if key.partition(".")[0] not in SECTIONS or "." not in key:
            own = ", ".join(f"{section}.…" for section in SECTIONS)
            raise RequestError(
                f"setting {key!r} cannot be set for one agent; expected one of {own}", param=key, code="invalid_value"
            )
        if key in SHARED:
            raise RequestError(
                f"setting {key!r} is the same for all agents; set it in burnish.toml", param=key, code="invalid_value"
            )
        if key in FILES:
            raise RequestError(
                f"setting {key!r} names a file of the server; set it in burnish.toml", param=key, code="invalid_value"
            )
    try:
        merged = for_agent(settings, overlay)
    except ConfigError as error:
        raise RequestError(str(error), param="settings", code="invalid_value") from error
    for name in COSTLY:
        most = MOST_TIMES * max(getattr(settings.recipe, name), Recipe.model_fields[name].default)
        if (wanted := getattr(merged.recipe, name)) > most:
            raise RequestError(
                f"learner.recipe.{name}: at most {most} for one agent, {MOST_TIMES} times the server's, got {wanted}; "
                "raise the server's in burnish.toml",
                param=f"learner.recipe.{name}",
                code="invalid_value",
            )
    return merged


def checked(settings: Settings, overlay: Mapping[str, object]) -> dict[str, Any]:
    """`overlay` with its values converted to the settings' types (a number in a text becomes a number)."""
    tree = laid_over(settings, overlay).model_dump(mode="json")
    found: dict[str, Any] = {}
    for key in overlay:
        value: Any = tree
        for part in key.split("."):
            value = value[part]
        found[key] = value
    return found
