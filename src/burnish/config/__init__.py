"""Every setting, as one typed tree: `burnish.toml`, then `BURNISH_…` variables, then flags. Later sources win.

Only this package reads the environment. An unknown key or a bad value stops the start with one readable `ConfigError`.
`BURNISH_LEARNER__MIN_ROWS=8` sets `learner.min_rows`.
"""

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from burnish.config.groups import Groups
from burnish.config.judging import Judge
from burnish.config.learning import Learner
from burnish.config.recipe import PRESETS, Recipe
from burnish.config.section import (
    ABILITIES,
    ANCHORS,
    BASE_NAME,
    LORA_RANKS,
    OF_KNOWN_BASES,
    SANDBOX_MODEL,
    Section,
)
from burnish.config.serving import Engine, Gateway, Journal, Remote
from burnish.config.versions import Agent, Alerts, Canary, Gate, Personal, Versions
from burnish.errors import ConfigError

__all__ = [
    "ABILITIES",
    "ANCHORS",
    "BASE_NAME",
    "FIRST",
    "LORA_RANKS",
    "OF_KNOWN_BASES",
    "PRESETS",
    "SANDBOX_MODEL",
    "Agent",
    "Alerts",
    "Canary",
    "Engine",
    "Gate",
    "Gateway",
    "Groups",
    "Journal",
    "Judge",
    "Learner",
    "Personal",
    "Recipe",
    "Remote",
    "Settings",
    "Versions",
    "defaults",
    "described",
    "effective",
    "for_agent",
    "given",
    "grouped",
    "load",
    "to_environment",
]


class Settings(BaseSettings):
    """The whole tree. `state_dir` holds everything that Burnish writes."""

    model_config = SettingsConfigDict(env_prefix="BURNISH_", env_nested_delimiter="__", extra="forbid", frozen=True)

    state_dir: Path = Field(
        Path(".burnish"), validate_default=True, description="Directory for the journal, adapters, keys and logs."
    )
    log_format: Literal["console", "json"] = Field("console", description="Format of the log lines.")
    agent: Agent = Agent()
    engine: Engine = Engine()
    gateway: Gateway = Gateway()
    remote: Remote = Remote()
    journal: Journal = Journal()
    judge: Judge = Judge()
    learner: Learner = Learner()
    groups: Groups = Groups()
    gate: Gate = Gate()
    canary: Canary = Canary()
    alerts: Alerts = Alerts()
    versions: Versions = Versions()
    personal: Personal = Personal()

    @field_validator("state_dir")
    @classmethod
    def _is_absolute(cls, folder: Path) -> Path:
        return folder.expanduser().absolute()  # parts may change their working directory

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment before the file. `load` merges flags on top of both."""
        return env_settings, init_settings

    @property
    def uses_sandbox(self) -> bool:
        return Path(self.engine.model) == SANDBOX_MODEL

    @property
    def engine_urls(self) -> tuple[str, ...]:
        """Base URLs of the engines in use: the configured ones, else the one started here."""
        return self.engine.urls or (f"http://127.0.0.1:{self.engine.port}",)

    @property
    def engine_adapters(self) -> dict[str, Path]:
        """Adapters that the engine started here serves besides the versions, by name."""
        return {name: Path(path).expanduser().absolute() for name, path in self.engine.adapters.items()}

    @property
    def remote_port(self) -> int:
        """Loopback port of the process that talks to the remote model. 0 (any) if the gateway's is 0."""
        return self.gateway.port and self.gateway.port + 2

    @property
    def preset(self) -> str:
        """Name of the preset in force."""
        if self.learner.preset == "auto":
            return "sandbox" if self.uses_sandbox else "general"
        return self.learner.preset

    @property
    def recipe(self) -> Recipe:
        """The preset, changed by the learner's settings and then by `learner.recipe`."""
        return Recipe(**{**PRESETS[self.preset], **self.learner.given()})

    @property
    def has_canary(self) -> bool | None:
        """True if a version that passed the gate answers a share of the traffic before it is promoted. None if the
        traffic decides.
        """
        if self.canary.mode != "auto":
            return self.canary.mode in ("on", "shadow")
        return {"full": True, "fast": False}.get(self.gate.tier)

    @property
    def holdout(self) -> float:
        """Share of the sessions that is kept out of training for the gate's held-out replay.

        In the tier `auto` only if `judge.model` names a judge. The base alone seldom compares two replies well.
        """
        is_used = self.gate.tier == "full" or (self.gate.tier == "auto" and bool(self.judge.model))
        return self.gate.holdout if is_used else 0.0

    @property
    def has_groups(self) -> bool:
        """True if shadow groups are drawn and learned from (docs/explanation/shadow-groups.md explains when they
        help)."""
        if self.groups.enabled is not None:
            return self.groups.enabled
        recipe = self.recipe
        has_hints_alone = not recipe.rl_weight and recipe.distill_weight > 0
        return self.learner.enabled and (self.groups.grader == "ratings" or has_hints_alone)

    @property
    def journal_url(self) -> str:
        return self.journal.url or f"sqlite:///{self.state_dir.resolve() / 'journal.db'}"

    @property
    def segments_dir(self) -> Path:
        return self.state_dir / "segments"

    @property
    def adapters_dir(self) -> Path:
        return self.state_dir / "adapters"

    @property
    def run_dir(self) -> Path:
        """Small files that processes share while they run: routes, heartbeats, the engine's key."""
        return self.state_dir / "run"

    @property
    def forgetting_file(self) -> Path:
        """The forgetting prompts: the operator's, the sandbox's, or the general ones that ship."""
        return self._data_file(self.gate.forgetting_prompts, "retention.jsonl", ABILITIES)

    @property
    def anchors_file(self) -> Path:
        """The anchor prompts: the operator's, the sandbox's, or the general ones that ship."""
        return self._data_file(self.learner.anchors, "anchors.jsonl", ANCHORS)

    def _data_file(self, given: str, of_sandbox: str, general: Path) -> Path:
        if given:
            return Path(given)
        return SANDBOX_MODEL.parent / "data" / of_sandbox if self.uses_sandbox else general


class _Given(Settings):
    """The tree without the environment, which has already been merged in."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def given(tree: Mapping[str, Any]) -> Settings:
    """The settings in the complete `tree`, independent of the environment. Raises ValidationError."""
    checked = _Given(**tree)
    return Settings.model_construct(**{name: getattr(checked, name) for name in Settings.model_fields})


def load(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings of `file` (default: `burnish.toml` if it exists), the environment and `flags` (dotted keys).

    If the sandbox's model is served, the sandbox's own settings are the defaults under all of these. Raises ConfigError
    with one line per problem. For an unknown key it suggests the nearest known one.
    """
    path = file or Path(os.environ.get("BURNISH_CONFIG", "burnish.toml"))
    tree = _read_toml(path) if file or path.exists() else {}
    try:
        settings = _with_flags(Settings(**tree), flags or {})
        if not settings.uses_sandbox:
            return settings
        return _with_flags(Settings(**_over(_read_toml(SANDBOX_MODEL.parent / "burnish.toml"), tree)), flags or {})
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(problem) for problem in error.errors())) from error


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _over(under: Mapping[str, Any], tree: Mapping[str, Any]) -> dict[str, Any]:
    """`tree` merged over `under`, section by section."""
    merged = dict(under)
    for key, value in tree.items():
        below = merged.get(key)
        merged[key] = _over(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _with_flags(settings: Settings, flags: Mapping[str, Any]) -> Settings:
    if not flags:
        return settings
    merged = settings.model_dump()
    for dotted, value in flags.items():
        *sections, key = dotted.split(".")
        node = merged
        for section in sections:
            node = node.setdefault(section, {})
            if not isinstance(node, dict):
                raise ConfigError(
                    f"unknown setting {dotted!r}: {section} has no settings below it; see `burnish config`"
                )
        node[key] = value
    return given(merged)


def for_agent(settings: Settings, overlay: Mapping[str, Any]) -> Settings:
    """`settings` with an agent's own (`AgentRow.settings`, dotted keys) merged over them. Raises ConfigError as `load`
    does.
    """
    try:
        found = _with_flags(settings, overlay)
        _ = found.recipe  # the preset and the agent's changes may not fit together
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(problem) for problem in error.errors())) from error
    return found


def to_environment(settings: Settings) -> dict[str, str]:
    """Variables that make a child process load exactly `settings`."""
    flat: dict[str, str] = {}
    for key, value in settings.model_dump(mode="json").items():
        if isinstance(value, dict):
            flat |= {
                f"BURNISH_{key}__{inner}".upper(): _as_text(leaf) for inner, leaf in value.items() if leaf is not None
            }
        else:
            flat[f"BURNISH_{key}".upper()] = _as_text(value)
    return flat


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def described() -> dict[str, str]:
    """Every dotted key with its one-sentence description."""
    found: dict[str, str] = {}
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            found |= {f"{name}.{inner}": leaf.description or "" for inner, leaf in section.model_fields.items()}
        else:
            found[name] = field.description or ""
    return found


FIRST = (
    "engine.model",
    "engine.urls",
    "gateway.host",
    "gateway.port",
    "state_dir",
    "agent.name",
    "judge.model",
    "judge.api_key",
    "learner.enabled",
    "learner.min_rows",
    "gate.tier",
    "gate.forgetting_prompts",
)
"""The most important settings."""


def grouped() -> dict[tuple[str, str], list[str]]:
    """The dotted keys by (title, description), each key once: the most important ones first, then section by
    section."""
    found: dict[tuple[str, str], list[str]] = {("First", "The twelve most important settings."): list(FIRST)}
    for key in described():
        if key not in FIRST:
            name, dot, _ = key.partition(".")
            section: Any = Settings.model_fields[name].annotation if dot else None
            title = name if section is not None else "other"
            found.setdefault((title, section.__doc__ or "" if section is not None else ""), []).append(key)
    return found


def defaults() -> dict[str, str]:
    """Every dotted key with its default as a JSON text, without paths of this installation.

    A setting of the recipe has the default of the preset `general`.
    """
    found: dict[str, str] = {}
    plain = Recipe().model_dump(mode="json")
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            for key, value in section().model_dump(mode="json").items():
                is_of_preset = section is Learner and value is None and key in plain
                found[f"{name}.{key}"] = f"preset: {json.dumps(plain[key])}" if is_of_preset else json.dumps(value)
        else:
            found[name] = json.dumps(str(field.default) if isinstance(field.default, Path) else field.default)
    return found | {"engine.model": "the sandbox's"}


def effective(settings: Settings) -> dict[str, Any]:
    """Every dotted key with the value in force, as JSON values, including the preset's values."""
    tree = settings.model_dump(mode="json")
    recipe = settings.recipe.model_dump(mode="json")
    found: dict[str, Any] = {}
    for key in described():
        name, _, leaf = key.partition(".")
        value = tree[name][leaf] if leaf else tree[name]
        found[key] = recipe.get(leaf) if name == "learner" and value is None else value
    return found | {"learner.preset": settings.preset}


def _explain(problem: Any) -> str:
    dotted = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        if dotted.removeprefix("learner.") in Recipe.model_fields and dotted.startswith("learner."):
            return f"unknown setting {dotted!r}; the recipe has it: learner.recipe.{dotted.removeprefix('learner.')}"
        near = difflib.get_close_matches(dotted, described(), n=1, cutoff=0.5)
        return f"unknown setting {dotted!r}" + (f"; did you mean {near[0]!r}?" if near else "; see `burnish config`")
    said = problem["msg"].removeprefix("Value error, ")
    return f"setting {dotted!r}: {said} (got {problem['input']!r})"
