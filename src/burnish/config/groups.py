"""Settings of shadow groups."""

from typing import Literal

from pydantic import Field

from burnish.config.section import Section


class Groups(Section):
    """Shadow groups: more replies to live prompts, drawn while the engine is idle, for group-relative learning."""

    enabled: bool | None = Field(
        None,
        description="Draw shadow groups and learn from them. None: where they are known to help, which is with the "
        "grader `ratings`, and with the others if hints alone are learned (`rl_weight = 0` in the recipe).",
    )
    tokens_per_minute: int = Field(20_000, ge=1, description="Most tokens drawn per minute, for all agents together.")
    max_per_user_hour: int = Field(600, ge=1, description="Most groups started per hour for one user's turns.")
    grader: Literal["ratings", "likelihood", "rubric"] = Field(
        "ratings",
        description="Scores the groups: what people's ratings of other replies say about a reply's form (`ratings`), "
        "how much likelier the user's hint makes a reply (`likelihood`), or a judge (`rubric`).",
    )
    earlier_hints: int = Field(
        0,
        ge=0,
        le=16,
        description="Most hints from the user's latest other turns that grade a turn's group besides its own. "
        "With them a turn without a complaint gets a group too. Use it for lasting wishes, such "
        "as a style.",
    )
