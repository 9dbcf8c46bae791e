"""The recipe: all that decides a training step. An operator picks a preset; an experiment changes fields of it.

A preset is a set of changes to the defaults below. `Settings.recipe` lays the learner's settings and `learner.recipe`
over it.
"""

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from burnish.config.section import Section


class Recipe(Section):
    """What a step trains on and how. docs/reference/objectives.md gives the formulas. It names no file and no device."""

    min_rows: int = Field(16, ge=1, description="A step begins when this many rows are ready.")
    max_rows: int = Field(32, ge=1, description="Most rows in one step.")
    max_wait: float = Field(
        300.0, gt=0, description="A step begins after this many seconds with at least half of `min_rows`."
    )
    max_off_policy_steps: int = Field(
        4, ge=1, description="Oldest policy that a row may come from, in versions behind the learner's."
    )
    num_iterations: int = Field(
        1,
        ge=1,
        description="Optimiser steps over the rows of one step: more learn more from each row, and take as many times "
        "as long.",
    )
    learning_rate: float = Field(1e-5, gt=0, description="AdamW's learning rate.")
    rank: int = Field(16, ge=1, description="LoRA rank.")
    alpha: int | None = Field(
        None, ge=1, description="LoRA alpha: the update is scaled by alpha / rank. None: twice the rank."
    )
    clip_low: float = Field(0.2, gt=0, description="PPO clip below 1.")
    clip_high: float = Field(0.28, gt=0, description="PPO clip above 1.")
    dual_clip: float = Field(3.0, gt=1, description="Cap on the loss of a negative advantage, as a multiple of it.")
    advantage: Literal["baseline", "grpo", "dr_grpo", "rloo"] = Field(
        "baseline", description="What a reward is compared with: a running baseline, or the other replies of its group."
    )
    groups: Literal["prompt", "session"] = Field(
        "prompt", description="A group is the replies to one and the same prompt, or the turns of one session."
    )
    min_advantage: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Rows whose reward is nearer than this to what was expected (in successes, 0 to 1) carry no "
        "policy gradient. It saves their passes; but those of an agent that is mostly liked are its "
        "successes, and then its failures push alone.",
    )
    scale_floor: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Advantages of a step are divided by their deviation over its tokens (SPO++), which counts as at "
        "least this; 0: they are not divided.",
    )
    correction: Literal["bypass", "token_tis"] = Field(
        "bypass",
        description="Off-policy: clip the ratio to the engine's own log-probs, or weigh by a truncated ratio beside "
        "it.",
    )
    policy_loss: Literal["ppo", "gspo", "cispo"] = Field(
        "ppo",
        description="Clip the ratio of each token (PPO) or of whole replies (GSPO), or let it be a weight without a "
        'clip (CISPO); the last two need `correction = "bypass"`.',
    )
    rl_weight: float = Field(1.0, ge=0, description="Weight of the policy-gradient term.")
    group_weight: float = Field(
        1.0, ge=0, description="Weight of the term over shadow groups, which exist if `groups.enabled` says so."
    )
    group_advantage: Literal["dr_grpo", "grpo", "rloo"] = Field(
        "dr_grpo",
        description="How a member of a shadow group is compared with the others: GRPO divides by their deviation.",
    )
    group_size: int = Field(4, ge=2, le=16, description="Replies of a shadow group, the live one included.")
    group_max_tokens: int = Field(
        256, ge=1, description="Longest shadow reply, in tokens. A live reply that is longer gets no group."
    )
    group_max_others: int = Field(
        0,
        ge=0,
        description="Requests of others in the engine up to which it counts as idle: only then groups are drawn.",
    )
    max_groups: int = Field(8, ge=0, description="Most shadow groups in one step.")
    distill_weight: float = Field(1.0, ge=0, description="Weight of the hindsight-distillation term.")
    distill_form: Literal["top_k", "token"] = Field(
        "top_k",
        description="Compare student and teacher over the student's likeliest tokens, or at the sampled one alone.",
    )
    distill_top_k: int = Field(
        20, ge=1, description="Student's tokens compared with the teacher one by one; the rest is one tail bin."
    )
    check_hints: bool = Field(
        True,
        description="Let the teacher refuse hints: those that change nothing more than any words would, or change "
        "everything.",
    )
    n_liked_replies: int = Field(
        16,
        ge=0,
        description="Most other users whose praise is asked about each hint: one that most of theirs speaks against "
        "is not taught. It takes 7 other users; 0: off.",
    )
    sft_weight: float = Field(0.0, ge=0, description="Weight of learning demonstrations and corrections word by word.")
    dpo_weight: float = Field(
        0.0, ge=0, description="Weight of preferring a correction to the reply that it corrects (DPO)."
    )
    dpo_beta: float = Field(
        0.1, gt=0, description="DPO's inverse temperature: how far a preference may lead from the reference."
    )
    dpo_reference: Literal["base", "teacher"] = Field(
        "base", description="What DPO measures from: the base, or the last promoted version."
    )
    kl_weight: float = Field(0.02, ge=0, description="Weight of the KL to the base.")
    anchor_weight: float = Field(
        0.5, ge=0, description="Weight of the replay of the base's own answers; 0 switches it off."
    )
    anchor_growth: float = Field(
        2.0,
        ge=1,
        description="Factor on the anchors' weight for each version that was refused for what it forgot, since one "
        "went live; squared where the live one is at the gate's limit; a step after such a refusal has no "
        "momentum. 1: neither.",
    )
    shrink: float = Field(
        0.95,
        gt=0,
        le=1,
        description="Factor on what the adapter adds to the base, at the end of a step, for each version but the "
        "first that was made from the same live one and refused for what it forgot; a half at least. 1: "
        "never.",
    )
    backoff: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Factor on the learning rate for each version that was refused or rolled back for what it had "
        "become; each one that goes live gives a quarter of it back. 1: never.",
    )
    anchor_rows: int = Field(8, ge=0, description="Anchor rows mixed into each step.")
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
        0.125,
        gt=0,
        le=1,
        description="Largest share of a step that one session may have, where users are capped; 1: off.",
    )
    new_users_cap: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Largest share of a step that all new users together may have, where users are capped; 1: off.",
    )
    known_after_turns: int = Field(
        8, ge=0, description="Turns of a user that must have been trained on before the user is not new."
    )
    keep_duplicates: bool = Field(
        False, description="Train on the same reply to the same prompt as often as a batch has it."
    )
    audit_rows: int = Field(
        4,
        ge=0,
        description="Rows of a step scored again under their own version, to tell policy lag from engine mismatch.",
    )
    max_mismatch: float = Field(
        0.01,
        gt=0,
        description="Mean log-ratio of engine and learner, in nats a token, beyond which an audited row is dropped.",
    )
    max_grad_norm: float = Field(1.0, gt=0, description="Gradient clipping by global norm.")
    outlier_z: float = Field(
        6.0,
        ge=0,
        description="A step is skipped whose gradient norm is this many standard deviations above the last 64; 0: off.",
    )
    monitors: Literal["act", "watch"] = Field(
        "act", description="`act`: yellow slows learning down and red publishes nothing; `watch` only records levels."
    )
    yellow_factor: float = Field(0.5, gt=0, le=1, description="Factor on the learning rate while a monitor is yellow.")
    monitor_spread: tuple[float, float] = Field(
        (0.3, 0.6),
        description="Yellow and red: fall of the rewards' standard deviation from its peak, as a share of it.",
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
        description="Yellow and red: rise, from its start, of the share of a reply's 4-grams that repeat an earlier "
        "one.",
    )
    monitor_tool_json: tuple[float, float] = Field(
        (0.02, 0.05), description="Yellow and red: fall of the share of tool calls that can be read, from its start."
    )
    monitor_mismatch: tuple[float, float] = Field(
        (1e-3, 1e-2), description="Yellow and red: k3 of the engine's log-probs against the learner's, in nats a token."
    )
    micro_tokens: int = Field(
        0, ge=0, description="Tokens of one forward and backward pass, at most; 0: 512 on a CPU, 4096 on a GPU."
    )
    checkpointing: bool = Field(
        False,
        description="Compute the layers' activations again in the backward pass: less memory, about a third more time.",
    )
    seed: int = Field(0, description="Seed of every random choice of the learner.")
    shuffle_rewards: bool = Field(
        False, description="Control experiment: give each row a reward of an earlier step, leave hints out."
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

    @model_validator(mode="after")
    def _form_knows_its_ratio(self) -> "Recipe":
        if self.policy_loss != "ppo" and self.correction != "bypass":
            raise ValueError(
                f'policy_loss = "{self.policy_loss}" has its own ratio; give correction = "bypass" with it'
            )
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
            "learning_rate": 1e-3,
            # With one it learns half as fast at first; with four the gate refuses more versions
            # (docs/decisions/0015-several-optimiser-steps-per-batch.md).
            "num_iterations": 2,
            "max_rows": 24,
            "max_wait": 20.0,
            "kl_weight": 0.1,
            "anchor_rows": 24,
            "anchor_weight": 3.0,
            # It is meant to leave its base far behind within some twenty steps. The usual limits are for models that
            # should not.
            "monitors": "watch",
            "outlier_z": 20.0,
            "monitor_kl": (3.0, 6.0),
            "monitor_entropy": (1.0, 2.0),
            "min_entropy": 0.005,
            "monitor_length": (0.8, 1.6),
        },
    }
)
"""Changes to the recipe's defaults, by preset. `sandbox` fits the sandbox's 2M-parameter model."""
