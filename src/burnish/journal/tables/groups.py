"""Shadow groups: replies drawn beside a live one, and the steps that used them."""

from sqlalchemy import JSON, Column, Index, LargeBinary
from sqlmodel import Field, SQLModel


class ShadowGroupRow(SQLModel, table=True):
    """A live reply and the replies drawn beside it (`ShadowRow`) by the same version: a group of `n_members` in all.
    Without a `wish` the live reply is no member, and `version` is the one that drew.

    `sampling` is the live reply's. `wish` is the accepted hint that the members are scored on, empty for none;
    `record_id` is its judgement. State: `state` (burnish.records.GroupState), `reason` (why it was dropped),
    `n_tokens` (drawn so far), `score` (the live reply's, in [0, 1]), `judge_id`, `votes` (grades by vote, in the
    members' order), `spent_step`, `drawn_at` (when tokens were last drawn).
    """

    __tablename__ = "shadow_group"
    __table_args__ = (Index("ix_shadow_group_state", "agent", "state"),)
    interaction_id: str = Field(primary_key=True, foreign_key="interaction.interaction_id", ondelete="CASCADE")
    agent: str
    version: int
    sampling: dict[str, float | int | bool] = Field(sa_column=Column(JSON, nullable=False))
    n_members: int
    wish: str = ""
    record_id: str | None = None
    state: str
    reason: str | None = None
    n_tokens: int = 0
    score: float | None = None
    judge_id: str | None = None
    votes: list[list[int] | None] = Field(default_factory=list, sa_column=Column(JSON, nullable=False, default=list))
    spent_step: int | None = None
    created_at: float
    drawn_at: float | None = Field(default=None, index=True)

    @property
    def has_live(self) -> bool:
        """True if the live reply is a member."""
        return bool(self.wish)


class ShadowRow(SQLModel, table=True):
    """A reply that nobody was shown, exactly as sampled. `member` counts from 1; the live reply is member 0. State:
    `score`.
    """

    __tablename__ = "shadow"
    interaction_id: str = Field(primary_key=True, foreign_key="shadow_group.interaction_id", ondelete="CASCADE")
    member: int = Field(primary_key=True)
    reply_digest: str
    finish_reason: str
    token_ids: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    logprobs: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    score: float | None = None


class GroupSampleRow(SQLModel, table=True):
    """One group of one step, with its members' scores of that time, the live reply's first.

    State: `skipped` (why it carried no term), `weight` (what the caps left of it, None for all).
    """

    __tablename__ = "group_sample"
    step_id: int = Field(primary_key=True)
    interaction_id: str = Field(primary_key=True)
    scores: list[float] = Field(sa_column=Column(JSON, nullable=False))
    skipped: str | None = None
    weight: float | None = None
