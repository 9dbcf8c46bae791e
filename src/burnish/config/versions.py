"""Settings of agents and of what their versions have to show: gate, canary, alerts, retention, personal agents."""

from typing import Literal

from pydantic import Field

from burnish.config.section import Section


class Gate(Section):
    """What a version must show before it goes live."""

    tier: Literal["fast", "full"] = Field(
        "full",
        description="`fast`: mechanical checks, probe and retention set. `full`: then held-out live turns answered by candidate and live "
        "and compared by the judge, and a canary.",
    )
    retention: str = Field(
        "", description="JSONL file of retention prompts; empty means the sandbox's when its model is used."
    )
    n_retention: int = Field(96, ge=64, description="Retention prompts asked of each candidate.")
    retention_margin: float = Field(
        0.1, gt=0, le=1, description="Largest tolerated loss against the base (one-sided 95 % bound)."
    )
    acceptance: str = Field(
        "",
        description="JSONL file of your own prompts with checks, of which no version may pass fewer than the best one so far, "
        "unless it passes as many as the live one; empty: none.",
    )
    acceptance_margin: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="Share of the acceptance prompts by which a version may be worse than the best one so far.",
    )
    acceptance_temperature: float = Field(
        1.0,
        ge=0,
        le=2,
        description="Temperature at which the acceptance prompts are asked, each with a random seed that stays the same; "
        "0: greedily, which sees a version waver late.",
    )
    acceptance_draws: int = Field(
        1,
        ge=1,
        le=64,
        description="Replies asked for to each acceptance prompt, each with a seed of its own. Twice as many tell versions apart that are "
        "0.7 times as far apart.",
    )
    probe_tolerance: float = Field(
        0.0, ge=0, description="Largest log-prob difference engine against learner; 0 chooses by dtype."
    )
    holdout: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="Share of the sessions that the `full` tier keeps out of training, to compare versions on.",
    )
    n_replay: int = Field(
        200, ge=1, description="Held-out turns put to each candidate and to the live version, the latest ones."
    )
    min_replay: int = Field(
        64, ge=1, description="Held-out turns, decided by the judge, below which no candidate passes."
    )
    replay_tokens: int = Field(512, ge=1, description="Longest reply to a held-out turn, in tokens.")
    replay_margin: float = Field(
        0.1,
        gt=0,
        le=1,
        description="Largest tolerated net share of held-out pairs lost to the live version (one-sided 95 % bound).",
    )
    replay_length: float = Field(
        0.6, gt=0, description="Largest tolerated change of the replies' mean length, as a share."
    )
    replay_repetition: float = Field(0.1, gt=0, description="Largest tolerated rise of the share of repeated 4-grams.")
    replay_broken_calls: float = Field(
        0.02, gt=0, description="Largest tolerated rise of the share of tool calls that cannot be read."
    )
    compare_minutes: float = Field(
        60.0,
        ge=0,
        description="Minutes for the judge to compare all pairs of a candidate; then it is decided with those that are there.",
    )


class Canary(Section):
    """A version on a share of the traffic before it is promoted, and the watch over it afterwards."""

    mode: Literal["auto", "on", "shadow", "off"] = Field(
        "auto",
        description="Whether a version that passed the gate gets a canary; `auto`: in the gate's tier `full`; `shadow`: it answers live "
        "turns unseen, and the judge compares.",
    )
    share: float = Field(0.1, gt=0, le=0.5, description="Share of the conversations that a canary answers.")
    shadow_share: float = Field(
        0.25, gt=0, le=1, description="Share of the live turns that a version in the shadow answers too."
    )
    test: Literal["auto", "paired", "baseline"] = Field(
        "auto",
        description="Judged rewards: in pairs with the other version's, or against its known rate; `auto`: pairs where both answer at a "
        "time, else the rate where enough turns tell it.",
    )
    alpha: float = Field(
        0.005,
        gt=0,
        le=0.1,
        description="Probability of stopping a version no worse than the other by its judged rewards.",
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
    patience: float = Field(
        900.0, ge=0, description="Seconds after which a turn without a verdict is counted without one."
    )
    length_ratio: float = Field(
        1.5, gt=1, description="A version whose replies are longer by more than this factor is stopped."
    )
    latency_ratio: float = Field(
        2.0, gt=1, description="A version whose replies take longer by more than this factor is stopped."
    )
    watch: bool = Field(
        True, description="Test every promoted version on against the one before, and roll back what is worse."
    )
    watch_turns: int = Field(2000, ge=1, description="Judged turns after which the watch over a version ends.")
    holdback: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="Share of the conversations that stay with the version before, while the new one is watched.",
    )
    drop_rows: bool = Field(
        True, description="Never train rows sampled by a version that was stopped on canary or rolled back by itself."
    )
    max_rollbacks: int = Field(3, ge=1, description="Automatic rollbacks within a day after which learning is paused.")


class Alerts(Section):
    """Who is told when something was undone."""

    webhook: str = Field(
        "", description="URL that gets a JSON POST when a canary is stopped or a version rolled back; empty for none."
    )
    timeout: float = Field(5.0, gt=0, description="Seconds for one POST; one that fails is logged and forgotten.")


class Versions(Section):
    """How long versions keep their files. What is live, previous, on trial, pinned, loaded or in flight always does."""

    keep_live: int = Field(
        5, ge=0, description="Versions that once were live and keep their files, the newest so many."
    )
    keep_refused_days: float = Field(
        7.0, ge=0, description="Days for which a version that was refused, or rolled back by itself, keeps its files."
    )
    check_minutes: float = Field(
        10.0, ge=0, description="Minutes between the looks at what may go; 0 never looks by itself."
    )


class Agent(Section):
    """The policy line that clients ask for."""

    name: str = Field("agent", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="Model name that clients use.")


class Personal(Section):
    """An agent of one's own for every end user, branching from the agent that they ask for."""

    enabled: bool = Field(False, description="Give each end user (`user` or x-burnish-user) an agent of their own.")
    agents: tuple[str, ...] = Field((), description="Agents whose users get one; empty: every agent's.")
    max_agents: int = Field(
        200, ge=1, description="Personal agents loaded at a time; beyond, the one unused for longest is unloaded."
    )
    idle_hours: float = Field(24.0, gt=0, description="Hours without a turn after which a personal agent is unloaded.")
