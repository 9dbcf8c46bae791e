"""Settings of the learner's process, and those of the recipe that operators change (burnish/config/recipe.py)."""

from typing import Any, Literal

from pydantic import Field, field_validator

from burnish.config.recipe import Recipe
from burnish.config.section import Section


class Learner(Section):
    """What is trained, and when. A setting of the recipe whose default is None takes the preset's value."""

    enabled: bool = Field(True, description="Train. If false, Burnish only records and judges.")
    preset: Literal["auto", "general", "sandbox"] = Field(
        "auto",
        description="Preset of the recipe. `auto` is `sandbox` if the sandbox's model is served, else `general`.",
    )
    recipe: dict[str, Any] = Field(
        {},
        description="Changes to the preset's recipe, for experiments, by field "
        "(docs/reference/objectives.md), e.g. `{ kl_weight = 0.1 }`.",
    )
    learning_rate: float | None = Field(None, gt=0, le=1, description="AdamW's learning rate.")
    rank: int | None = Field(None, ge=1, le=512, description="LoRA rank. Alpha is twice the rank.")
    min_rows: int | None = Field(None, ge=1, le=1_000_000, description="A step begins when this many rows are ready.")
    max_wait: float | None = Field(
        None, gt=0, description="A step begins after this many seconds with at least half of `min_rows`."
    )
    max_rows: int | None = Field(None, ge=1, le=4_096, description="Most rows in one step.")
    max_off_policy_steps: int | None = Field(
        None, ge=1, le=1_000, description="Most versions between the learner's and the one that sampled a row."
    )
    hint_quorum: int = Field(
        2,
        ge=1,
        le=1_000,
        description="Proved users who must have said a wish before a shared agent is taught it in words, if an "
        "operator has not approved it. 1: one is enough, as for personal agents and for an agent with one user.",
    )
    anchors: str = Field("", description="JSONL file of anchor prompts. Empty: general ones that ship with Burnish.")
    monitors: Literal["act", "watch"] | None = Field(
        None,
        description="`act`: yellow slows learning down and red publishes nothing. `watch`: levels are only recorded.",
    )
    max_latency_ratio: float | None = Field(
        None,
        ge=0,
        description="The learner pauses between pieces of its work while tokens take more than this many "
        "times as long as without it. 0: never. None: 1.25 on a GPU, and never on a CPU, where the learner runs only "
        "on idle cores.",
    )
    threads: int = Field(
        0,
        ge=0,
        description="Torch threads on a CPU. 0: one for each core, or one if the model has a few million parameters.",
    )
    processes: int = Field(
        1,
        ge=1,
        description="Processes that take each step together, one per GPU. `burnish up` starts them with torchrun.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Device for training.")

    @field_validator("recipe")
    @classmethod
    def _is_known(cls, changes: dict[str, Any]) -> dict[str, Any]:
        return Recipe.checked(changes)

    def given(self) -> dict[str, Any]:
        """The recipe fields that these settings set."""
        own = {name: getattr(self, name) for name in Learner.model_fields if name in Recipe.model_fields}
        return {name: value for name, value in own.items() if value is not None} | self.recipe
