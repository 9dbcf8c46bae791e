"""Settings of shadow groups."""

from typing import Literal

from pydantic import Field

from burnish.config.section import Section


class Groups(Section):
    """Shadow groups: more replies to live prompts, drawn while the engine is idle, for group-relative learning."""

    enabled: bool | None = Field(
        None,
        description="Draw shadow groups and learn from them. None: only if hints alone are learned (`rl_weight = 0` "
        "in the recipe), because there they are known to pay.",
    )
    tokens_per_minute: int = Field(4000, ge=1, description="Most tokens drawn in a minute, for all agents together.")
    max_per_user_hour: int = Field(60, ge=1, description="Most groups begun for one user's turns in an hour.")
    grader: Literal["likelihood", "rubric"] = Field(
        "likelihood",
        description="Who scores a group: the learner's base, by how much likelier the user's hint makes a reply; or a "
        "judge, by a rubric.",
    )
    earlier_hints: int = Field(
        0,
        ge=0,
        le=16,
        description="Most hints from a user's other turns, the latest, on which a turn's group is graded besides its "
        "own. With them a turn without a complaint gets a group too. It is for wishes that last, such as "
        "a style.",
    )
