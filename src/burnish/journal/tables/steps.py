"""The learner's steps and their rows."""

from sqlalchemy import JSON, Column, UniqueConstraint
from sqlmodel import Field, SQLModel


class StepRow(SQLModel, table=True):
    """One training step. Inserting it allocates `version`. State: `outcome`, `reason`, `metrics`, `monitors`, `level`,
    `ended_at`.

    `monitors` holds each monitor's level, value and reason. `level` is the worst of them, None before the step ended.
    """

    __tablename__ = "step"
    __table_args__ = (UniqueConstraint("agent", "version"),)
    step_id: int | None = Field(default=None, primary_key=True)
    agent: str = Field(index=True)
    version: int
    parent: int
    attempt: int = 1
    outcome: str
    reason: str | None = None
    metrics: dict[str, float] = Field(sa_column=Column(JSON, nullable=False))
    monitors: dict[str, object] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False, default=dict))
    level: str | None = None
    started_at: float
    ended_at: float | None = None


class SampleRow(SQLModel, table=True):
    """One row of one step, with its reward and the ids of the reward records of that time.

    `hint_status` is the code for which the teacher refused the hint, None if it did not. `weight` is what the caps left
    of the row (1: all). `n_earlier` counts its user's turns that earlier steps had spent. `logprob_change` is by how
    much the step changed the reply's log-prob, in nats a token (above 0: likelier), None if it was not measured.
    """

    __tablename__ = "sample"
    step_id: int = Field(primary_key=True)
    interaction_id: str = Field(primary_key=True, index=True)
    reward: float | None = None
    reward_source: str | None = None
    record_ids: list[str] = Field(sa_column=Column(JSON, nullable=False))
    hint: str | None = None
    hint_status: str | None = None
    skipped: str | None = None
    weight: float | None = None
    n_earlier: int | None = None
    logprob_change: float | None = None
