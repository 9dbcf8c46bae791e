"""Settings of shadow groups."""

from typing import Literal

from pydantic import Field

from burnish.config.section import Section


class Groups(Section):
    """Shadow groups: more replies to live prompts, drawn while the engine is idle, for group-relative learning."""

    enabled: bool | None = Field(
        None,
        description="Draw shadow groups and learn from them. None: only if hints alone are learned "
        "(`rl_weight = 0` in the recipe), because they are known to help there.",
    )
    tokens_per_minute: int = Field(4000, ge=1, description="Most tokens drawn per minute, for all agents together.")
    max_per_user_hour: int = Field(60, ge=1, description="Most groups started per hour for one user's turns.")
    grader: Literal["likelihood", "ratings", "rubric"] = Field(
        "likelihood",
        description="Scores the groups: how much likelier the user's hint makes a reply (`likelihood`), what people's "
        "ratings of other replies say about a reply's form (`ratings`), or a judge (`rubric`).",
    )
    earlier_hints: int = Field(
        0,
        ge=0,
        le=16,
        description="Most hints from the user's latest other turns that grade a turn's group besides its own. "
        "With them a turn without a complaint gets a group too. Use it for lasting wishes, such "
        "as a style.",
    )
