"""Every setting, as one typed tree: `burnish.toml`, then `BURNISH_…` variables, then flags; later wins.

Only this file reads the environment. An unknown key or a bad value stops the start with one readable `ConfigError`.
`BURNISH_LEARNER__MIN_ROWS=8` sets `learner.min_rows`.
"""

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from burnish.errors import ConfigError

SANDBOX_MODEL = Path(__file__).parent / "sandbox" / "model"
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Engine(_Section):
    """The vLLM process that samples."""

    model: str = Field(
        str(SANDBOX_MODEL),
        description="Directory (or hub name) of the base causal LM; the sandbox's own model by default.",
    )
    base_name: str = Field("base", description="Model name under which the frozen base answers.")
    urls: tuple[str, ...] = Field((), description="Base URLs of vLLM servers that are already running; empty starts one here.")
    api_key: str = Field("", description="Key of the engines; empty makes a random one for the engine started here.")
    host: str = Field(
        "127.0.0.1", description="Address the engine started here listens on; beyond loopback only in a private network."
    )
    port: int = Field(8701, ge=0, le=65535, description="Loopback port of the engine started here.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Weights' type; float32 is right for small models on a CPU."
    )
    max_model_len: int | None = Field(None, ge=64, description="Longest prompt plus reply, in tokens; None asks the model.")
    max_loras: int = Field(4, ge=3, description="Adapters that one batch may mix: live, draining, canary and one being loaded.")
    max_cpu_loras: int = Field(8, ge=3, description="Adapters kept in memory; must be at least max_loras.")
    max_lora_rank: int = Field(
        16, description="Highest adapter rank that the engine accepts; vLLM knows 1, 8, 16, 32, 64, 128, 256, 320, 512."
    )
    max_queued: int = Field(512, ge=1, description="Requests that may wait in the engine before it answers 503.")
    tool_parser: str = Field("hermes", description="vLLM's --tool-call-parser for this model; empty switches tool parsing off.")
    reasoning_parser: str = Field("", description="vLLM's --reasoning-parser for this model; empty for none.")
    gpu_memory: float = Field(
        0.5, gt=0.0, lt=1.0, description="Share of a GPU's memory for the engine; the learner gets the rest."
    )
    extra_args: tuple[str, ...] = Field((), description="Further command-line arguments for vLLM, passed on as they are.")

    @field_validator("max_lora_rank")
    @classmethod
    def _is_known_rank(cls, rank: int) -> int:
        if rank not in LORA_RANKS:
            raise ValueError(f"vLLM accepts one of {LORA_RANKS}")
        return rank


class Gateway(_Section):
    """The OpenAI-compatible endpoint."""

    host: str = Field("127.0.0.1", description="Address to listen on; anything but loopback needs at least one inference key.")
    port: int = Field(8700, ge=0, le=65535, description="Port to listen on.")
    allowed_hosts: tuple[str, ...] = Field(
        (), description="Further Host header names to answer to, beside loopback and `host`."
    )
    allowed_origins: tuple[str, ...] = Field((), description="Browser origins that may call; others get 403.")
    max_body_bytes: int = Field(32 * 2**20, ge=1024, description="Largest request body; a larger one gets 413.")
    open_inference: bool = Field(True, description="On loopback, let requests without a key talk (as tenant `default`).")
    connect_timeout: float = Field(2.0, gt=0, description="Seconds to reach the engine before a 503.")
    model_map: dict[str, str] = Field(
        {},
        description="Model names for harnesses that insist on their own: pattern to model, e.g. `claude-*` to `agent`; a model "
        "that exists goes first, then the first pattern that fits.",
    )
    max_in_flight: int = Field(
        2000, ge=0, description="Requests that one gateway process takes on at a time before it answers 503; 0 for no limit."
    )
    processes: int = Field(1, ge=1, le=64, description="Gateway processes that share the port (Linux: SO_REUSEPORT).")


class Remote(_Section):
    """A model elsewhere that answers in an agent's place. Its turns are recorded and never trained."""

    model: str = Field("", description="litellm's name of the model, e.g. anthropic/claude-sonnet-5; empty for none.")
    url: str = Field("", description="Base URL of its API; empty lets litellm choose.")
    api_key: str = Field("", description="Key for that API.")
    use: Literal["fallback", "always"] = Field(
        "fallback",
        description="`fallback` asks it when no engine can answer; `always` asks it instead of the engine.",
    )
    port: int = Field(8702, ge=0, le=65535, description="Loopback port of the process that talks to it.")
    timeout: float = Field(600.0, gt=0, description="Seconds for one reply.")


class Journal(_Section):
    """Where records live."""

    url: str = Field("", description="SQLAlchemy URL, e.g. postgresql+psycopg://…; empty means SQLite in the state directory.")
    fsync: bool = Field(
        False, description="Flush every record to disk before its reply ends: survives power loss, not only kill -9."
    )
    segment_bytes: int = Field(64 * 2**20, ge=4096, description="Size at which a gateway process begins a new segment file.")
    reserve_bytes: int = Field(4 * 2**20, ge=0, description="Preallocated space that recording falls back to on a full disk.")
    session_ttl: float = Field(3600.0, gt=0, description="Seconds after which a quiet conversation counts as closed.")
    poll_interval: float = Field(0.1, gt=0, description="Seconds between the ingester's looks at the segments.")
    verifiers: tuple[str, ...] = Field(
        (),
        description="Tools whose exit codes and test results you trust as a verdict, e.g. run_tests; others' never praise a reply.",
    )


class Feedback(_Section):
    """What users and programs say about replies."""

    pending_hours: float = Field(
        168.0, gt=0, description="Hours for which feedback waits for the reply that it is about; then it expires."
    )


class Judge(_Section):
    """The process-reward judge."""

    model: str = Field(
        "",
        description="Model that judges: empty = the frozen base on the same engine; else litellm's name, e.g. openai/gpt-5.",
    )
    url: str = Field("", description="Base URL of an OpenAI-compatible server for `model`; empty lets litellm choose.")
    api_key: str = Field("", description="Key for that server.")
    votes: int = Field(3, ge=1, le=15, description="Independent votes for each turn; with fewer than 3 no hint is used.")
    fallback_model: str = Field("", description="Model asked where the first one fails; named as `model` is; empty for none.")
    fallback_url: str = Field("", description="Base URL of an OpenAI-compatible server for `fallback_model`.")
    fallback_api_key: str = Field("", description="Key for that server.")
    deadline: float = Field(60.0, gt=0, description="Seconds for all votes of a turn by one judge; then it counts as failed.")
    daily_votes: int = Field(0, ge=0, description="Most votes in one day (UTC); what comes after waits. 0 for no limit.")
    min_agreement: float = Field(
        0.6, ge=0.0, le=1.0, description="Share of the votes that must agree; below it the judge abstains."
    )
    rubrics: dict[str, str] = Field(
        {},
        description="What the judge is told besides, by agent, or by route (`chat`, `messages`, …) for agents without an entry; part of "
        "the judge's identity.",
    )
    temperature: float = Field(0.6, ge=0.0, le=2.0, description="Sampling temperature of the votes.")
    max_tokens: int = Field(64, ge=8, description="Longest answer of a vote, in tokens.")
    timeout: float = Field(30.0, gt=0, description="Seconds for one vote.")
    max_attempts: int = Field(3, ge=1, description="Tries before a turn is left unjudged.")
    concurrency: int = Field(4, ge=1, description="Turns judged at a time.")
    structured: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Hold the judge to the form of its answer: a regular expression on an engine, a JSON schema at a provider. `auto` "
        "asks our own engine and providers known to be able, until it is refused once.",
    )
    pool: int = Field(1, ge=1, le=64, description="Judging processes side by side, or actors with `judge.ray`.")
    ray: str = Field(
        "", description="Ray cluster whose actors judge: its address, or `local` for one started here; empty for none."
    )


class Learner(_Section):
    """What is trained, and when."""

    enabled: bool = Field(True, description="False records and judges but never trains.")
    min_rows: int = Field(16, ge=1, description="A step begins when this many rows are ready…")
    max_rows: int = Field(32, ge=1, description="Most rows in one step.")
    max_wait: float = Field(300.0, gt=0, description="…or after this many seconds with at least half of them.")
    max_lag: int = Field(4, ge=1, description="Oldest policy a row may come from, in versions behind the learner's.")
    learning_rate: float = Field(1e-5, gt=0, description="AdamW's learning rate.")
    rank: int = Field(16, ge=1, description="LoRA rank.")
    alpha: int = Field(32, ge=1, description="LoRA alpha; the update is scaled by alpha / rank.")
    clip_low: float = Field(0.2, gt=0, description="PPO clip below 1.")
    clip_high: float = Field(0.28, gt=0, description="PPO clip above 1.")
    dual_clip: float = Field(3.0, gt=1, description="Cap on the loss of a negative advantage, as a multiple of it.")
    advantage: Literal["baseline", "grpo", "dr_grpo", "rloo"] = Field(
        "baseline", description="What a reward is compared with: a running baseline, or the other replies of its group."
    )
    groups: Literal["prompt", "session"] = Field(
        "prompt", description="A group is the replies to one and the same prompt, or the turns of one session."
    )
    correction: Literal["bypass", "token_tis"] = Field(
        "bypass",
        description="Off-policy: clip the ratio to the engine's own log-probs, or weigh by a truncated ratio beside it.",
    )
    rl_weight: float = Field(1.0, ge=0, description="Weight of the policy-gradient term.")
    distill_weight: float = Field(1.0, ge=0, description="Weight of the hindsight-distillation term.")
    distill_form: Literal["top_k", "token"] = Field(
        "top_k", description="Compare student and teacher over the student's likeliest tokens, or at the sampled one alone."
    )
    distill_top_k: int = Field(
        20, ge=1, description="Student's tokens compared with the teacher one by one; the rest is one tail bin."
    )
    check_hints: bool = Field(
        True,
        description="Let the teacher refuse hints: those that change nothing more than any words would, or change everything.",
    )
    sft_weight: float = Field(0.0, ge=0, description="Weight of learning demonstrations and corrections word by word.")
    dpo_weight: float = Field(0.0, ge=0, description="Weight of preferring a correction to the reply that it corrects (DPO).")
    dpo_beta: float = Field(
        0.1, gt=0, description="DPO's inverse temperature: how far a preference may lead from the reference."
    )
    dpo_reference: Literal["base", "teacher"] = Field(
        "base", description="What DPO measures from: the base, or the last promoted version."
    )
    kl_weight: float = Field(0.02, ge=0, description="Weight of the KL to the base.")
    anchor_weight: float = Field(0.5, ge=0, description="Weight of the replay of the base's own answers; 0 switches it off.")
    anchor_rows: int = Field(8, ge=0, description="Anchor rows mixed into each step.")
    anchors: str = Field(
        "", description="JSONL file of anchor prompts; empty means the sandbox's when its model is used, else none."
    )
    baseline_decay: float = Field(
        0.9, gt=0, lt=1, description="How much of the running baseline's evidence each version keeps."
    )
    user_cap: float = Field(
        0.25,
        gt=0,
        le=1,
        description="Largest share of a step that one user's tokens may have, with enough users (4 at 0.25); 1: off.",
    )
    session_cap: float = Field(
        0.125, gt=0, le=1, description="Largest share of a step that one session may have, where users are capped; 1: off."
    )
    coalition_cap: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Largest share of a step that all new users together may have, where users are capped; 1: off.",
    )
    known_after: int = Field(8, ge=0, description="Turns of a user that must have been trained on before the user is not new.")
    keep_duplicates: bool = Field(False, description="Train on the same reply to the same prompt as often as a batch has it.")
    audit_rows: int = Field(
        4, ge=0, description="Rows of a step scored again under their own version, to tell policy lag from engine mismatch."
    )
    max_mismatch: float = Field(
        0.01, gt=0, description="Mean log-ratio of engine and learner, in nats a token, beyond which an audited row is dropped."
    )
    max_grad_norm: float = Field(1.0, gt=0, description="Gradient clipping by global norm.")
    outlier_z: float = Field(
        6.0,
        ge=0,
        description="A step is skipped whose gradient norm is this many standard deviations above the last 64; 0: off.",
    )
    monitors: Literal["act", "watch"] = Field(
        "act", description="`act`: yellow slows learning down and red publishes nothing; `watch`: levels are only told."
    )
    hold_factor: float = Field(0.5, gt=0, le=1, description="Factor on the learning rate while a monitor is yellow.")
    monitor_spread: tuple[float, float] = Field(
        (0.3, 0.6), description="Yellow and red: fall of the rewards' standard deviation from its peak, as a share of it."
    )
    monitor_entropy: tuple[float, float] = Field(
        (0.4, 1.0), description="Yellow: change of the entropy from its start, as a share; red: rise."
    )
    min_entropy: float = Field(0.05, ge=0, description="Entropy in nats a token below which its monitor is red.")
    monitor_grad_norm: tuple[float, float] = Field(
        (4.0, 6.0), description="Yellow: z-score of a gradient norm; red: reached twice within the last 64 steps."
    )
    monitor_kl: tuple[float, float] = Field((0.05, 0.2), description="Yellow and red: KL to the base, in nats a token.")
    monitor_length: tuple[float, float] = Field(
        (0.3, 0.6), description="Yellow and red: change of the replies' mean length from its start, as a share."
    )
    monitor_repetition: tuple[float, float] = Field(
        (0.1, 0.3),
        description="Yellow and red: rise, from its start, of the share of a reply's 4-grams that repeat an earlier one.",
    )
    monitor_tool_json: tuple[float, float] = Field(
        (0.02, 0.05), description="Yellow and red: fall of the share of tool calls that can be read, from its start."
    )
    monitor_mismatch: tuple[float, float] = Field(
        (1e-3, 1e-2), description="Yellow and red: k3 of the engine's log-probs against the learner's, in nats a token."
    )
    threads: int = Field(1, ge=1, description="Torch threads on a CPU.")
    nice: int = Field(
        10, ge=0, le=19, description="How far the learner's process stands behind serving's for the CPU (Unix niceness)."
    )
    slow_down_at: float = Field(
        1.5,
        ge=0,
        description="The learner rests between micro-batches while tokens come this many times slower than without it; 0: never.",
    )
    gpu_memory: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Largest share of a GPU's memory for the learner; 0: what the engine beside it leaves, less 5 %.",
    )
    micro_tokens: int = Field(
        0, ge=0, description="Tokens of one forward and backward pass, at most; 0: 512 on a CPU, 4096 on a GPU."
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where to train.")
    checkpointing: bool = Field(
        False, description="Compute the layers' activations again in the backward pass: less memory, about a third more time."
    )
    seed: int = Field(0, description="Seed of every random choice of the learner.")
    shuffle_rewards: bool = Field(
        False, description="Control experiment: permute the rewards among a step's rows, leave hints out."
    )

    @field_validator(
        "monitor_spread",
        "monitor_entropy",
        "monitor_grad_norm",
        "monitor_kl",
        "monitor_length",
        "monitor_repetition",
        "monitor_tool_json",
        "monitor_mismatch",
    )
    @classmethod
    def _is_ordered(cls, limits: tuple[float, float]) -> tuple[float, float]:
        if not 0.0 < limits[0] <= limits[1]:
            raise ValueError("give yellow and then red, both above 0 and red not below yellow, as in [0.1, 0.3]")
        return limits


class Gate(_Section):
    """What a version must show before it goes live."""

    tier: Literal["fast"] = Field("fast", description="`fast`: mechanical checks, probe and retention set.")
    retention: str = Field("", description="JSONL file of retention prompts; empty means the sandbox's when its model is used.")
    n_retention: int = Field(96, ge=64, description="Retention prompts asked of each candidate.")
    retention_margin: float = Field(
        0.1, gt=0, le=1, description="Largest tolerated loss against the base (one-sided 95 % bound)."
    )
    probe_tolerance: float = Field(
        0.0, ge=0, description="Largest log-prob difference engine against learner; 0 chooses by dtype."
    )


class Canary(_Section):
    """A version on a share of the traffic before it is promoted, and the watch over it afterwards."""

    mode: Literal["auto", "on", "off"] = Field(
        "auto", description="Whether a version that passed the gate gets a canary; `auto`: in the gate's tier `full`."
    )
    share: float = Field(0.1, gt=0, le=0.5, description="Share of the conversations that a canary answers.")
    test: Literal["auto", "paired", "baseline"] = Field(
        "auto",
        description="Judged rewards: in pairs with the other version's, or against its known rate; `auto`: pairs where both answer at a "
        "time, else the rate where enough turns tell it.",
    )
    alpha: float = Field(
        0.005, gt=0, le=0.1, description="Probability of stopping a version no worse than the other by its judged rewards."
    )
    beta: float = Field(0.05, gt=0, le=0.5, description="Probability of passing a version that is worse by `delta`.")
    delta: float = Field(0.1, gt=0, lt=1, description="Loss of judged success that counts: 0.1 is ten points.")
    min_turns: int = Field(
        50, ge=1, description="Judged turns of a canary below which nothing passes and it is recorded as skipped."
    )
    max_hours: float = Field(24.0, gt=0, description="Hours after which an undecided canary is skipped.")
    when_skipped: Literal["promote", "refuse"] = Field(
        "promote", description="What becomes of a version whose canary was skipped for want of evidence."
    )
    baseline_turns: int = Field(
        500,
        ge=20,
        description="Latest judged turns of the other version that tell its rate, and that a watch makes pairs with.",
    )
    user_cap: float = Field(
        0.25,
        gt=0,
        le=1,
        description="Largest share of a test's turns that one user may have, with enough users (4 at 0.25); 1: off.",
    )
    patience: float = Field(900.0, ge=0, description="Seconds after which a turn without a verdict is counted without one.")
    length_ratio: float = Field(
        1.5, gt=1, description="A version whose replies are longer by more than this factor is stopped."
    )
    latency_ratio: float = Field(
        2.0, gt=1, description="A version whose replies take longer by more than this factor is stopped."
    )
    watch: bool = Field(True, description="Test every promoted version on against the one before, and roll back what is worse.")
    watch_turns: int = Field(2000, ge=1, description="Judged turns after which the watch over a version ends.")
    holdback: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="Share of the conversations that stay with the version before, while the new one is watched.",
    )
    drop_rows: bool = Field(True, description="Never train rows that a version sampled which was rolled back by itself.")
    max_rollbacks: int = Field(3, ge=1, description="Automatic rollbacks within a day after which learning is paused.")


class Alerts(_Section):
    """Who is told when something was undone."""

    webhook: str = Field(
        "", description="URL that gets a JSON POST when a canary is stopped or a version rolled back; empty for none."
    )
    timeout: float = Field(5.0, gt=0, description="Seconds for one POST; one that fails is logged and forgotten.")


class Versions(_Section):
    """How long versions keep their files. What is live, previous, on trial, pinned, loaded or in flight always does."""

    keep_live: int = Field(5, ge=0, description="Versions that once were live and keep their files, the newest so many.")
    keep_refused_days: float = Field(
        7.0, ge=0, description="Days for which a version that was refused, or rolled back by itself, keeps its files."
    )
    check_minutes: float = Field(10.0, ge=0, description="Minutes between the looks at what may go; 0 never looks by itself.")


class Agent(_Section):
    """The policy line that clients ask for."""

    name: str = Field("agent", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="Model name that clients use.")


class Personal(_Section):
    """An agent of one's own for every end user, branching from the agent that they ask for."""

    enabled: bool = Field(False, description="Give each end user (`user` or x-burnish-user) an agent of their own.")
    agents: tuple[str, ...] = Field((), description="Agents whose users get one; empty: every agent's.")
    max_agents: int = Field(
        200, ge=1, description="Personal agents loaded at a time; beyond, the one unused for longest is unloaded."
    )
    idle_hours: float = Field(24.0, gt=0, description="Hours without a turn after which a personal agent is unloaded.")


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
    gate: Gate = Gate()
    canary: Canary = Canary()
    alerts: Alerts = Alerts()
    personal: Personal = Personal()
    versions: Versions = Versions()

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
    def has_canary(self) -> bool:
        """True where a version that passed the gate answers a share of the traffic before it is promoted."""
        return self.canary.mode == "on" or (self.canary.mode == "auto" and str(self.gate.tier) == "full")

    @property
    def engine_urls(self) -> tuple[str, ...]:
        """Base URLs of the engines in use: those that were given, else the one started here."""
        return self.engine.urls or (f"http://127.0.0.1:{self.engine.port}",)

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


def load(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings of `file` (default: `burnish.toml` where it exists), the environment and `flags` (dotted keys).

    Where the sandbox's model is served, the sandbox's own settings stand under all of these. Raises ConfigError with one
    line per problem; an unknown key comes with the nearest known one.
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
    return Settings.model_validate(merged)


def for_agent(settings: Settings, overlay: Mapping[str, Any]) -> Settings:
    """`settings` with an agent's own (`AgentRow.settings`, dotted keys) laid over them. Raises ConfigError as `load` does."""
    try:
        return _with_flags(settings, overlay)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(problem) for problem in error.errors())) from error


def to_environment(settings: Settings) -> dict[str, str]:
    """Variables that make a child process load exactly `settings`."""
    flat: dict[str, str] = {}
    for key, value in settings.model_dump(mode="json").items():
        if isinstance(value, dict):
            flat |= {f"BURNISH_{key}__{inner}".upper(): _as_text(leaf) for inner, leaf in value.items() if leaf is not None}
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
        if isinstance(section, type) and issubclass(section, _Section):
            found |= {f"{name}.{inner}": leaf.description or "" for inner, leaf in section.model_fields.items()}
        else:
            found[name] = field.description or ""
    return found


def defaults() -> dict[str, Any]:
    """Every dotted key with its default, as a JSON text; paths of this installation are left out."""
    found: dict[str, Any] = {}
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, _Section):
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
