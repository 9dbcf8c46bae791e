"""Settings of the engine, the gateway, the remote model, and the journal."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from burnish.config.section import LORA_RANKS, SANDBOX_MODEL, Section


class Engine(Section):
    """The vLLM process that samples."""

    model: str = Field(
        str(SANDBOX_MODEL),
        description="Directory of the base causal LM, its hub name, or the name of a fetched one (`smollm2`). Default: "
        "the one that the state directory was last served with, else the sandbox's own.",
    )
    urls: tuple[str, ...] = Field(
        (), description="Base URLs of vLLM servers that are already running. Empty: start one here."
    )
    api_key: str = Field("", description="Key of the engines. Empty: a random one for the engine started here.")
    host: str = Field(
        "127.0.0.1",
        description="Address that the engine started here listens on. Use one beyond loopback only in a "
        "private network.",
    )
    port: int = Field(8701, ge=0, le=65535, description="Loopback port of the engine started here.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="Type of the weights. `auto` on a CPU: bfloat16 if the processor multiplies it natively, else "
        "float32. A model of a few million parameters is float32.",
    )
    max_model_len: int | None = Field(
        None, ge=64, description="Longest prompt plus reply, in tokens. None: the model's own limit."
    )
    max_loras: int = Field(
        4, ge=3, description="Adapters that one batch may mix: live, draining, canary and one being loaded."
    )
    max_lora_rank: int = Field(
        16,
        description="Highest adapter rank that the engine accepts. vLLM supports 1, 8, 16, 32, 64, 128, 256, 320, 512.",
    )
    tool_parser: str = Field("hermes", description="vLLM's --tool-call-parser for this model. Empty: no tool parsing.")
    reasoning_parser: str = Field("", description="vLLM's --reasoning-parser for this model. Empty: none.")
    gpu_memory: float = Field(
        0.5, gt=0.0, lt=1.0, description="Share of a GPU's memory for the engine. The learner gets the rest."
    )
    adapters: dict[str, str] = Field(
        {},
        description="Further LoRA adapters that the engine serves, by name, e.g. a judge's. Clients cannot "
        "ask for them.",
    )
    extra_args: tuple[str, ...] = Field((), description="Further command-line arguments for vLLM, passed on unchanged.")

    @field_validator("max_lora_rank")
    @classmethod
    def _is_known_rank(cls, rank: int) -> int:
        if rank not in LORA_RANKS:
            raise ValueError(f"expected a rank that vLLM accepts: one of {LORA_RANKS}")
        return rank


class Gateway(Section):
    """The OpenAI-compatible endpoint."""

    host: str = Field(
        "127.0.0.1", description="Address to listen on. Any address but loopback needs at least one inference key."
    )
    port: int = Field(
        8700, ge=0, le=65533, description="Port to listen on. The remote model uses the port two above, on loopback."
    )
    allowed_hosts: tuple[str, ...] = Field((), description="Accepted Host header names besides loopback and `host`.")
    allowed_origins: tuple[str, ...] = Field((), description="Browser origins that may call. Others get 403.")
    open_inference: bool = Field(
        True,
        description="On loopback and without `allowed_hosts`, programs of the gateway's own user may talk without a "
        "key (as tenant `default`). Set it to false if a proxy runs as that user.",
    )
    model_map: dict[str, str] = Field(
        {},
        description="Model names for harnesses that insist on their own: pattern to model, e.g. `claude-*` to "
        "`agent`. The name of an existing model comes first, then the first pattern that matches.",
    )
    commands: tuple[str, ...] = Field(
        (),
        description="Agents whose users may rate the last reply by saying `/good`, `/bad …` or `/undo`, e.g. "
        '["agent"]; "*" for all. The gateway answers these itself.',
    )
    ui_port: int = Field(
        8703,
        ge=0,
        le=65535,
        description="Loopback port of the pages for people, which `burnish up` starts. 0: no pages.",
    )
    processes: int = Field(1, ge=1, le=64, description="Gateway processes that share the port (Linux: SO_REUSEPORT).")


class Remote(Section):
    """A model elsewhere that answers in an agent's place. Its turns are recorded and never trained."""

    model: str = Field("", description="litellm's name of the model, e.g. anthropic/claude-sonnet-5. Empty: none.")
    url: str = Field("", description="Base URL of its API. Empty: litellm chooses.")
    api_key: str = Field("", description="Key for that API.")
    use: Literal["fallback", "always"] = Field(
        "fallback",
        description="`fallback`: ask it if no engine can answer. `always`: ask it instead of the engine.",
    )


class Journal(Section):
    """Where records live."""

    url: str = Field(
        "", description="SQLAlchemy URL, e.g. postgresql+psycopg://…. Empty: SQLite in the state directory."
    )
    fsync: bool = Field(
        False,
        description="Flush every record to disk before its reply ends. It then survives power loss, not only kill -9.",
    )
    session_timeout: float = Field(
        3600.0, gt=0, description="Seconds without a request after which a conversation counts as closed."
    )
    verifiers: tuple[str, ...] = Field(
        (),
        description="Tools with exit codes, test results and HTTP statuses that count as verdicts, e.g. "
        "run_tests. Other tools' are never rewards.",
    )
    redact: tuple[str, ...] = Field(
        (),
        description="Agents whose turns are stored without e-mail addresses, phone and card numbers, IBANs, public IP "
        'addresses and secrets, e.g. ["support"]; "*" for all. Such turns do not train. Names are not found.',
    )
    keep: dict[Literal["turns", "feedback", "audit", "gigabytes"], Annotated[float, Field(gt=0)]] = Field(
        {},
        description="Days for which `turns` (with all that was made from them), `feedback` and `audit` entries are "
        "kept, and the `gigabytes` of the database beyond which the oldest turns go, e.g. { turns = 90, gigabytes = 50 "
        "}. They are erased; versions that learned from them stay. What is not named stays for ever.",
    )
