"""Every setting, as one typed tree: `burnish.toml`, then `BURNISH_…` variables, then flags; later wins.

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

from burnish.config.judging import Judge
from burnish.config.learning import Learner
from burnish.config.section import LORA_RANKS, SANDBOX_MODEL, Section
from burnish.config.serving import Engine, Feedback, Gateway, Journal, Remote
from burnish.config.shadow import Shadow
from burnish.config.versions import Agent, Alerts, Canary, Gate, Personal, Versions
from burnish.errors import ConfigError

__all__ = [
    "LORA_RANKS",
    "SANDBOX_MODEL",
    "Agent",
    "Alerts",
    "Canary",
    "Engine",
    "Feedback",
    "Gate",
    "Gateway",
    "Journal",
    "Judge",
    "Learner",
    "Personal",
    "Remote",
    "Settings",
    "Shadow",
    "Versions",
    "defaults",
    "described",
    "for_agent",
    "given",
    "load",
    "to_environment",
]


class Settings(BaseSettings):
    """The whole tree. `state_dir` holds everything that Burnish writes."""

    model_config = SettingsConfigDict(env_prefix="BURNISH_", env_nested_delimiter="__", extra="forbid", frozen=True)

    state_dir: Path = Field(
        Path(".burnish"), validate_default=True, description="Directory for the journal, adapters, keys and logs."
    )
    log_format: Literal["console", "json"] = Field("console", description="How log lines look.")
    agent: Agent = Agent()
    engine: Engine = Engine()
    gateway: Gateway = Gateway()
    remote: Remote = Remote()
    journal: Journal = Journal()
    feedback: Feedback = Feedback()
    judge: Judge = Judge()
    learner: Learner = Learner()
    shadow: Shadow = Shadow()
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
        """Environment before the file; flags are merged by `load` on top of both."""
        return env_settings, init_settings

    @property
    def uses_sandbox(self) -> bool:
        return Path(self.engine.model) == SANDBOX_MODEL

    @property
    def engine_urls(self) -> tuple[str, ...]:
        """Base URLs of the engines in use: those that were given, else the one started here."""
        return self.engine.urls or (f"http://127.0.0.1:{self.engine.port}",)

    @property
    def engine_adapters(self) -> dict[str, Path]:
        """Adapters that the engine started here serves besides the versions, by name."""
        return {name: Path(path).expanduser().absolute() for name, path in self.engine.adapters.items()}

    @property
    def has_canary(self) -> bool:
        """True where a version that passed the gate answers a share of the traffic before it is promoted."""
        return self.canary.mode in ("on", "shadow") or (self.canary.mode == "auto" and self.gate.tier == "full")

    @property
    def has_groups(self) -> bool:
        """True where shadow groups are drawn and learned from (docs/explanation/learning.md says where they pay)."""
        if self.shadow.enabled is not None:
            return self.shadow.enabled
        return self.learner.enabled and not self.learner.rl_weight and self.learner.distill_weight > 0

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
    def retention_file(self) -> Path | None:
        return self._data_file(self.gate.retention, "retention.jsonl")

    @property
    def anchors_file(self) -> Path | None:
        return self._data_file(self.learner.anchors, "anchors.jsonl")

    def _data_file(self, given: str, shipped: str) -> Path | None:
        if given:
            return Path(given)
        return SANDBOX_MODEL.parent / "data" / shipped if self.uses_sandbox else None


class _Given(Settings):
    """The tree as it is given: the environment has had its say before."""

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
    """The settings that `tree` spells out in full, whatever the environment says. Raises ValidationError."""
    checked = _Given(**tree)
    return Settings.model_construct(**{name: getattr(checked, name) for name in Settings.model_fields})


def load(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings of `file` (default: `burnish.toml` where it exists), the environment and `flags` (dotted keys).

    Where the sandbox's model is served, the sandbox's own settings stand under all of these. Raises ConfigError with
    one line per problem; an unknown key comes with the nearest known one.
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
    """`tree` laid over `under`, section by section."""
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
                raise ConfigError(f"unknown setting {dotted!r}: {section} has no parts; see `burnish config`")
        node[key] = value
    return given(merged)


def for_agent(settings: Settings, overlay: Mapping[str, Any]) -> Settings:
    """`settings` with an agent's own (`AgentRow.settings`, dotted keys) laid over them. Raises ConfigError as `load`
    does."""
    try:
        return _with_flags(settings, overlay)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(problem) for problem in error.errors())) from error


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


def defaults() -> dict[str, Any]:
    """Every dotted key with its default, as a JSON text; paths of this installation are left out."""
    found: dict[str, Any] = {}
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            values = section().model_dump(mode="json")
            found |= {f"{name}.{key}": json.dumps(value) for key, value in values.items()}
        else:
            found[name] = json.dumps(str(field.default) if isinstance(field.default, Path) else field.default)
    return found | {"engine.model": "the sandbox's"}


def _explain(problem: Any) -> str:
    dotted = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(dotted, described(), n=1, cutoff=0.5)
        return f"unknown setting {dotted!r}" + (f"; did you mean {near[0]!r}?" if near else "; see `burnish config`")
    return f"setting {dotted!r}: {problem['msg']} (got {problem['input']!r})"
