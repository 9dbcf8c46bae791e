"""Settings of shadow groups."""

from typing import Literal

from pydantic import Field

from burnish.config.section import Section


class Shadow(Section):
    """More replies to live prompts, drawn while the engine is idle, for group-relative learning."""

    enabled: bool | None = Field(
        None,
        description="Draw shadow replies to live prompts and learn from groups of them. None: where they have been shown to pay, that is "
        "where hints alone are learned (`learner.rl_weight = 0`).",
    )
    group_size: int = Field(4, ge=2, le=16, description="Replies of a group, the live one included.")
    tokens_per_minute: int = Field(4000, ge=1, description="Most tokens drawn in a minute, for all agents together.")
    share: float = Field(1.0, ge=0, le=1, description="Share of the eligible turns that get a group.")
    user_per_hour: int = Field(60, ge=1, description="Most groups begun for one user's turns in an hour.")
    max_tokens: int = Field(
        256, ge=1, description="Longest shadow reply, in tokens; a live reply that is longer gets no group."
    )
    max_age: float = Field(1800.0, gt=0, description="Seconds after a live reply in which its group must be drawn.")
    max_others: int = Field(0, ge=0, description="Requests of others in the engine up to which it counts as idle.")
    needs_wish: bool = Field(
        True,
        description="Only turns with a wish to grade on get a group: an accepted hint of their user; false: a rubric also grades others, "
        "on the task.",
    )
    recall: int = Field(
        0,
        ge=0,
        le=16,
        description="Most wishes that a user has voiced about other turns, the latest, which a turn's group is graded on as well as on its "
        "own; with them a turn that nobody complained about gets a group too. It is for wishes that last, as those for a style do.",
    )
    grader: Literal["likelihood", "rubric"] = Field(
        "likelihood",
        description="Who scores a group: the learner's base, by how much likelier the user's wish makes a reply; or a judge, by a rubric.",
    )
    judge_model: str = Field(
        "", description="Model that grades by the rubric, named as `judge.model` is; empty: the judge's own."
    )

    @property
    def asks_for_wish(self) -> bool:
        """True where a turn without a wish to grade on gets no group."""
        return self.needs_wish or self.grader == "likelihood"
