"""Settings of agents and their versions: gate, canary, alerts, kept files, personal agents."""

from typing import Literal

from pydantic import Field

from burnish.config.section import Section


class Gate(Section):
    """What a version must show before it goes live."""

    tier: Literal["auto", "fast", "full"] = Field(
        "auto",
        description="`fast`: mechanical checks, probe and forgetting prompts. `full`: then also held-out live "
        "turns, answered by candidate and live version and compared by the judge, and a canary. `auto`: these join "
        "as soon as there is the traffic and the judge for them, and no version waits for them.",
    )
    forgetting_prompts: str = Field(
        "",
        description="JSONL file of prompts with checks. A candidate must not lose many of those that the base "
        "passes. Empty: general ones that ship with Burnish.",
    )
    forgetting_margin: float = Field(
        0.1,
        gt=0,
        le=1,
        description="Largest tolerated share of the forgetting prompts lost against the base (one-sided 95 % bound).",
    )
    acceptance_prompts: str = Field(
        "",
        description="JSONL file of your own prompts with checks. No version may pass fewer than the best one "
        "so far, unless it passes as many as the live one. Empty: none.",
    )
    acceptance_margin: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="Share of the acceptance prompts by which a version may be worse than the best one so far.",
    )
    slice_margin: float = Field(
        0.1,
        gt=0,
        le=1,
        description="Largest tolerated loss in one slice of the traffic (a route, key, tool, language or system "
        "prompt), of its held-out pairs or its judged success. 1: slices are only reported.",
    )
    holdout: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="Share of the sessions that is kept out of training, to compare versions on them. In the tier "
        "`auto` only if `judge.model` is set.",
    )


class Canary(Section):
    """A version on a share of the traffic before it is promoted, and the watch over it afterwards."""

    mode: Literal["auto", "on", "shadow", "off"] = Field(
        "auto",
        description="Whether a version that passed the gate gets a canary. `auto`: in the gate's tier `full`, "
        "and in `auto` once a day brings enough rated turns to decide it. "
        "`shadow`: it answers live turns unseen, and the judge compares.",
    )
    share: float = Field(0.1, gt=0, le=0.5, description="Share of the conversations that a canary answers.")
    margin: float = Field(0.1, gt=0, lt=1, description="Loss of judged success that counts. 0.1 is ten points.")
    max_hours: float = Field(
        24.0, gt=0, le=8760, description="Hours after which an undecided canary is skipped and its version promoted."
    )
    watch: bool = Field(
        True, description="Compare every promoted version with the one before, and roll it back if it is worse."
    )
    holdback: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="Share of the conversations that stay with the version before, while the new one is watched.",
    )


class Alerts(Section):
    """Notices to people about versions, learning, judges and the disk."""

    webhook: str = Field(
        "",
        description="URL that gets a signed JSON POST when a version goes live, is refused, stopped or rolled back, "
        "when learning starves, a judge is unfit or the disk is low. `slack+https://…` for a Slack-compatible "
        "receiver. Empty: none.",
    )
    allow_private: bool = Field(
        False, description="Whether the webhook may stand at a private address, such as this machine's own."
    )


class Versions(Section):
    """How long versions keep their files. Always kept: live, previous, on trial, pinned, loaded, in flight."""

    keep_live: int = Field(
        5, ge=0, le=10_000, description="Number of formerly live versions, the newest, that keep their files."
    )
    keep_refused_days: float = Field(
        7.0,
        ge=0,
        description="Days for which a version keeps its files after it was refused or automatically rolled back.",
    )


class Agent(Section):
    """The policy line that clients ask for."""

    name: str = Field("agent", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="Model name that clients use.")


class Personal(Section):
    """Personal agents: one for every proved user, branching from the parent agent that the user asks for."""

    enabled: bool = Field(False, description="Give each proved user a personal agent.")
    agents: tuple[str, ...] = Field((), description="Parent agents with personal agents. Empty: every agent.")
    max_agents: int = Field(
        200,
        ge=1,
        description="Personal agents loaded at the same time. Beyond it, the least recently used one is unloaded.",
    )
