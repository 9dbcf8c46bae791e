"""Jobs, leased by their workers."""

from typing import ClassVar

from sqlalchemy import JSON
from sqlmodel import Field, SQLModel


class LeaseRow(SQLModel, table=True):
    """A lease on work that one process may do at a time (state). One row holds the id of this journal's adapter
    store."""

    __tablename__ = "lease"
    name: str = Field(primary_key=True)
    holder: str
    until: float


class JobRow(SQLModel):
    """The columns of every job table. `subject` identifies the work. All columns but it and `payload` are state."""

    subject: str = Field(primary_key=True)
    payload: dict[str, object] = Field(sa_type=JSON)
    state: str = Field(default="queued", index=True)
    attempts: int = 0
    run_after: float = 0.0
    lease_until: float | None = None
    worker: str | None = None
    error: str | None = None
    created_at: float
    ended_at: float | None = None

    queue: ClassVar[str] = ""


class JudgeJob(JobRow, table=True):
    """Judge one turn."""

    __tablename__ = "judge_job"
    queue: ClassVar[str] = "judge"


class CompareJob(JobRow, table=True):
    """Compare a candidate's reply with the live version's."""

    __tablename__ = "compare_job"
    queue: ClassVar[str] = "compare"


class RubricJob(JobRow, table=True):
    """Score the members of a shadow group blind."""

    __tablename__ = "rubric_job"
    queue: ClassVar[str] = "rubric"


class ShadowJob(JobRow, table=True):
    """Draw more replies for a live prompt."""

    __tablename__ = "shadow_job"
    queue: ClassVar[str] = "shadow"


class ReplayJob(JobRow, table=True):
    """Let a candidate answer held-out live turns."""

    __tablename__ = "replay_job"
    queue: ClassVar[str] = "replay"


class LoadJob(JobRow, table=True):
    """Load, probe and decide a candidate version."""

    __tablename__ = "load_job"
    queue: ClassVar[str] = "load"


class ErasureJob(JobRow, table=True):
    """Erase what is stored of one voice (src/burnish/journal/erasure.py).

    `subject` is a digest that does not name the voice. `payload` names it until the job is done; then it says what was
    erased.
    """

    __tablename__ = "erasure_job"
    queue: ClassVar[str] = "erasure"
