"""The recipe: everything that decides a training step. An operator picks a preset. An experiment changes its fields.

A preset is a set of changes to the defaults below. `Settings.recipe` merges the learner's settings and `learner.recipe`
over it.
"""

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from burnish.config.section import Section


class Recipe(Section):
    """What a step trains on and how. docs/reference/objectives.md gives the formulas. It names no file and no
    device."""

    min_rows: int = Field(16, ge=1, le=1_000_000, description="A step begins when this many rows are ready.")
    max_rows: int = Field(32, ge=1, le=4_096, description="Most rows in one step.")
    max_wait: float = Field(
        300.0,
        gt=0,
        description="A step begins after this many seconds with at least half of `min_rows`.",
    )
    max_off_policy_steps: int = Field(
        4, ge=1, le=1_000, description="Most versions between the learner's and the one that sampled a row."
    )
    num_iterations: int = Field(
        2,
        ge=1,
        le=64,
        description="Optimiser steps over the rows of one step. More learn more from each row and take "
        "proportionally longer.",
    )
    step_kl: float = Field(
        0.08,
        ge=0,
        description="How far one step moves the policy: its KL from the policy before, in nats a token on the "
        "step's own replies. The update is scaled to meet it. Less if few of the replies teach something, and a "
        "quarter if only shadow groups do. 0: no scaling, the learning rate decides.",
    )
    learning_rate: float = Field(
        5e-4,
        gt=0,
        le=1,
        description="AdamW's learning rate. With `step_kl` it is only the first step's, before scaling.",
    )
    rank: int = Field(16, ge=1, le=512, description="LoRA rank.")
    alpha: int | None = Field(
        None, ge=1, le=8192, description="LoRA alpha: the update is scaled by alpha / rank. None: twice the rank."
    )
    clip_low: float = Field(0.2, gt=0, description="PPO clip below 1.")
    clip_high: float = Field(0.28, gt=0, description="PPO clip above 1.")
    dual_clip: float = Field(3.0, gt=1, description="Cap on the loss of a negative advantage, as a multiple of it.")
    advantage: Literal["baseline", "grpo", "dr_grpo", "rloo"] = Field(
        "baseline", description="What a reward is compared with: a running baseline, or the other replies of its group."
    )
    groups: Literal["prompt", "session"] = Field(
        "prompt", description="What a group is: the replies to one prompt, or the turns of one session."
    )
    min_advantage: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Rows with a smaller advantage (in successes, 0 to 1) carry no policy gradient. This "
        "saves their passes. But for an agent that is mostly liked they are the successes, and "
        "then only the failures push.",
    )
    scale_floor: float = Field(
        0.0,
        ge=0,
        le=1,
        description="A step's advantages are divided by their deviation over its tokens (SPO++), or by this "
        "if the deviation is smaller. 0: no division.",
    )
    correction: Literal["bypass", "token_tis"] = Field(
        "bypass",
        description="Off-policy correction: clip the ratio to the engine's own log-probs, or add a truncated "
        "ratio as a weight.",
    )
    policy_loss: Literal["ppo", "gspo", "cispo"] = Field(
        "ppo",
        description="Clip the ratio of each token (PPO) or of whole replies (GSPO), or use it as a weight "
        'without a clip (CISPO). The last two need `correction = "bypass"`.',
    )
    rl_weight: float = Field(1.0, ge=0, description="Weight of the policy-gradient term.")
    group_weight: float = Field(
        1.0,
        ge=0,
        description="Weight of the term over shadow groups. Whether these exist is decided by `groups.enabled`.",
    )
    group_advantage: Literal["dr_grpo", "grpo", "rloo"] = Field(
        "dr_grpo",
        description="How a member of a shadow group is compared with the others. GRPO divides by their deviation.",
    )
    group_size: int = Field(
        8,
        ge=2,
        le=16,
        description="Replies in a shadow group, the live one among them except with the grader `ratings`.",
    )
    group_max_tokens: int = Field(
        256, ge=1, le=32_768, description="Longest shadow reply, in tokens. A live reply that is longer gets no group."
    )
    group_max_others: int = Field(
        0,
        ge=0,
        le=10_000,
        description="Groups are drawn only while the engine has at most this many requests from others.",
    )
    max_groups: int = Field(16, ge=0, le=256, description="Most shadow groups in one step.")
    distill_weight: float = Field(1.0, ge=0, description="Weight of the hindsight-distillation term.")
    distill_form: Literal["top_k", "token"] = Field(
        "top_k",
        description="Compare student and teacher over the student's likeliest tokens, or only at the sampled token.",
    )
    distill_top_k: int = Field(
        20,
        ge=1,
        le=1_024,
        description="The student's likeliest tokens that are compared with the teacher one by one. The rest "
        "is one tail bin.",
    )
    distill_teacher: Literal["base", "live"] = Field(
        "live", description="The teacher that reads the hint or the examples: the live version, or the frozen base."
    )
    n_examples: int = Field(
        4,
        ge=0,
        le=64,
        description="Most good replies (praised, or written by a person) that the teacher reads as examples "
        "instead of hints, in steps of which at least one of eight replies is good. 0: off.",
    )
    check_hints: bool = Field(
        True,
        description="Let the teacher refuse hints that change no more than a neutral hint does, or that "
        "change everything.",
    )
    n_liked_replies: int = Field(
        16,
        ge=0,
        le=256,
        description="Most other users whose praised replies validate each hint. A hint that most of them "
        "contradict is not taught. It takes 7 other users. 0: off.",
    )
    sft_weight: float = Field(
        1.0,
        ge=0,
        description="Weight of supervised learning of right replies, token by token: demonstrations, and the good "
        "replies of earlier steps.",
    )
    replay_rows: int = Field(
        16,
        ge=0,
        le=4_096,
        description="Most good replies of earlier steps (praised, or written by a person) that a step learns again.",
    )
    dpo_weight: float = Field(
        0.0, ge=0, description="Weight of preferring a correction to the reply that it corrects (DPO)."
    )
    dpo_beta: float = Field(
        0.1,
        gt=0,
        description="DPO's inverse temperature. Smaller values let a preference lead further from the reference.",
    )
    dpo_reference: Literal["base", "teacher"] = Field(
        "base", description="DPO's reference: the base, or the teacher (the last promoted version)."
    )
    kl_weight: float = Field(0.0, ge=0, description="Weight of the KL to the base. 0: off.")
    anchor_weight: float = Field(
        12.0,
        ge=0,
        description="Weight of keeping the base's predictions on its own answers to general prompts. 0: off.",
    )
    anchor_growth: float = Field(
        2.0,
        ge=1,
        le=100,
        description="Factor on the anchors' weight for each version that was refused for what it forgot since "
        "one went live, and squared if the live version is at the gate's limit. A step after such "
        "a refusal has no momentum. 1: neither.",
    )
    shrink: float = Field(
        0.95,
        gt=0,
        le=1,
        description="Factor on the adapter at the end of a step, for each version from the same live one that "
        "was refused for what it forgot, except the first. The product is at least one half. 1: "
        "never.",
    )
    backoff: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Factor on the learning rate for each version that was refused or rolled back for what it "
        "had become. Each version that goes live takes back a quarter of one such factor. 1: "
        "never.",
    )
    anchor_rows: int = Field(32, ge=0, le=4_096, description="Anchor rows mixed into each step.")
    baseline_decay: float = Field(
        0.9, gt=0, lt=1, description="Share of the running baseline's evidence that each version keeps."
    )
    user_cap: float = Field(
        0.25,
        gt=0,
        le=1,
        description="Largest share of a step for one user's tokens, given enough users (4 at 0.25). 1: off.",
    )
    session_cap: float = Field(
        0.125,
        gt=0,
        le=1,
        description="Largest share of a step for one session, if users are capped. 1: off.",
    )
    new_users_cap: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Largest share of a step for all new users together, if users are capped. 1: off.",
    )
    known_after_turns: int = Field(
        8, ge=0, le=1_000_000, description="Trained turns after which a user is no longer new."
    )
    keep_duplicates: bool = Field(
        False, description="Train on repeated copies of the same reply to the same prompt in a batch."
    )
    audit_rows: int = Field(
        4,
        ge=0,
        le=256,
        description="Rows of a step that are scored again under their own version, to distinguish staleness "
        "from engine mismatch.",
    )
    max_mismatch: float = Field(
        0.1,
        gt=0,
        description="Largest mean log-ratio of engine and learner, in nats a token. An audited row beyond it "
        "is dropped.",
    )
    max_grad_norm: float = Field(1.0, gt=0, description="Gradient clipping by global norm.")
    outlier_z: float = Field(
        6.0,
        ge=0,
        description="A step is skipped if its gradient norm is this many standard deviations above the last "
        "64. 0: off.",
    )
    monitors: Literal["act", "watch"] = Field(
        "act",
        description="`act`: yellow slows learning down and red publishes nothing. `watch`: levels are only recorded.",
    )
    yellow_factor: float = Field(0.5, gt=0, le=1, description="Factor on the learning rate while a monitor is yellow.")
    monitor_spread: tuple[float, float] = Field(
        (0.3, 0.6),
        description="Yellow and red: fall of the rewards' standard deviation from its peak, as a share of it.",
    )
    monitor_entropy: tuple[float, float] = Field(
        (1.0, 2.0), description="Yellow: change of the entropy from its start, as a share. Red: its rise."
    )
    min_entropy: float = Field(0.005, ge=0, description="Entropy, in nats a token, below which its monitor is red.")
    monitor_grad_norm: tuple[float, float] = Field(
        (4.0, 6.0),
        description="Yellow: z-score of a gradient norm. Red: a z-score reached twice within the last 64 steps.",
    )
    monitor_kl: tuple[float, float] = Field((3.0, 6.0), description="Yellow and red: KL to the base, in nats a token.")
    monitor_length: tuple[float, float] = Field(
        (0.8, 1.6), description="Yellow and red: change of the replies' mean length from its start, as a share."
    )
    monitor_repetition: tuple[float, float] = Field(
        (0.1, 0.3),
        description="Yellow and red: rise, from its start, of the share of a reply's 4-grams that repeat an "
        "earlier one.",
    )
    monitor_tool_json: tuple[float, float] = Field(
        (0.02, 0.05), description="Yellow and red: fall, from its start, of the share of tool calls that parse."
    )
    monitor_mismatch: tuple[float, float] = Field(
        (1e-2, 1e-1),
        description="Yellow and red: k3 of the engine's log-probs against the learner's, in nats a token. Rounding "
        "in bfloat16 makes some 0.003.",
    )
    micro_tokens: int = Field(
        0, ge=0, le=262_144, description="Most tokens of one forward and backward pass. 0: 512 on a CPU, 4096 on a GPU."
    )
    checkpointing: bool = Field(
        False,
        description="Compute the layers' activations again in the backward pass. This takes less memory and "
        "about a third more time.",
    )
    seed: int = Field(0, description="Seed of every random choice of the learner.")
    shuffle_rewards: bool = Field(
        False, description="Control experiment: give each row a reward of an earlier step, and leave hints out."
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
            raise ValueError("expected yellow and then red, both above 0 and red at least yellow, as in [0.1, 0.3]")
        return limits

    @model_validator(mode="after")
    def _form_knows_its_ratio(self) -> "Recipe":
        if self.policy_loss != "ppo" and self.correction != "bypass":
            raise ValueError(f'policy_loss = "{self.policy_loss}" has its own ratio; set correction = "bypass" with it')
        return self

    @property
    def lora_alpha(self) -> int:
        """LoRA's alpha, in the same unit as the rank."""
        return self.alpha if self.alpha is not None else 2 * self.rank

    @classmethod
    def checked(cls, changes: Mapping[str, Any]) -> dict[str, Any]:
        """`changes` to a recipe as JSON values of the right types. Raises ValueError with a remedy for an unknown field
        or a bad value."""
        for name in changes:
            if name not in cls.model_fields:
                near = difflib.get_close_matches(name, cls.model_fields, n=1, cutoff=0.5)
                remedy = f"did you mean {near[0]!r}?" if near else "docs/reference/objectives.md lists the fields"
                raise ValueError(f"unknown field {name!r} of the recipe; {remedy}")
        try:
            made = cls(**changes).model_dump(mode="json")
        except ValidationError as error:
            raise ValueError("; ".join(_explain(problem) for problem in error.errors())) from error
        return {name: made[name] for name in changes}


def _explain(problem: Any) -> str:
    field = ".".join(str(part) for part in problem["loc"])
    return f"{field}: {problem['msg']} (got {problem['input']!r})" if field else str(problem["msg"])


PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "general": {},
        "sandbox": {
            "step_kl": 0.0,
            "learning_rate": 1e-3,
            "n_examples": 0,
            "sft_weight": 0.0,
            "max_rows": 24,
            "max_wait": 20.0,
            "kl_weight": 0.1,
            "anchor_rows": 24,
            "anchor_weight": 3.0,
            "group_size": 4,
            "max_groups": 8,
            # This model is meant to move far from its base within some twenty steps. The usual limits are for models
            # that are not.
            "monitors": "watch",
            "outlier_z": 20.0,
        },
    }
)
"""Changes to the recipe's defaults, by preset. `sandbox` fits the sandbox's 2M-parameter model."""
