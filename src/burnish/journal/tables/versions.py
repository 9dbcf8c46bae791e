"""Versions, their aliases, the comparisons that they were in, and the audit of every change."""

from sqlalchemy import JSON, Column, Index
from sqlmodel import Field, SQLModel


class VersionRow(SQLModel, table=True):
    """A published adapter version. `parent` is a version of `parent_agent`, None for the same agent.

    `origin`: made by a `step`, an `import`, a `branch` from another agent's version, or a `retrain` without erased
    turns. State: `state`, `evidence`, `reason`, `decided_at`, `is_pinned` (its files are never removed), `removed_at`
    (its files are gone; the row stays, so that its number and rows stay spent).
    """

    __tablename__ = "version"
    agent: str = Field(primary_key=True)
    version: int = Field(primary_key=True)
    parent: int
    step_id: int | None = None
    digest: str
    state: str
    reason: str | None = None
    evidence: dict[str, object] = Field(sa_column=Column(JSON, nullable=False))
    created_at: float
    decided_at: float | None = None
    origin: str = "step"
    parent_agent: str | None = None
    is_pinned: bool = False
    removed_at: float | None = None


class AliasRow(SQLModel, table=True):
    """A mutable pointer at a version, moved by compare-and-set (state)."""

    __tablename__ = "alias"
    agent: str = Field(primary_key=True)
    alias: str = Field(primary_key=True)
    version: int
    updated_at: float


class ComparisonRow(SQLModel, table=True):
    """A candidate's and the live version's (`baseline`) replies to a held-out live turn, and the judge's comparison.

    `outcome`: 1 the candidate is better, −1 the other, 0 a tie. None while undecided, or if the judge abstained (then
    with a reason). State: everything from `outcome` on.
    """

    __tablename__ = "comparison"
    agent: str = Field(primary_key=True)
    version: int = Field(primary_key=True)
    interaction_id: str = Field(primary_key=True)
    baseline: int
    candidate_digest: str
    baseline_digest: str
    created_at: float
    outcome: int | None = None
    judge_id: str | None = None
    votes: list[int | None] = Field(default_factory=list, sa_column=Column(JSON, nullable=False, default=list))
    reason: str | None = None


class CanaryRow(SQLModel, table=True):
    """An observation: a version that is compared with another (`baseline`) while it answers real requests.

    `kind`: `canary` (a share of the traffic, before promotion), `shadow` (answers that nobody sees) or `watch` (after
    promotion). State: `share` (0 to 1), `state` (running, passed, stopped, skipped, cancelled), `evidence`, `reason`,
    `ended_at`.
    """

    __tablename__ = "canary"
    __table_args__ = (Index("ix_canary_agent", "agent", "state"),)
    canary_id: int | None = Field(default=None, primary_key=True)
    agent: str
    version: int
    baseline: int
    kind: str
    share: float
    state: str
    evidence: dict[str, object] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False, default=dict))
    reason: str | None = None
    started_at: float
    ended_at: float | None = None


class AuditRow(SQLModel, table=True):
    """Every change of what is served, of keys and of a user's data, written in the transaction of the change.

    `agent`: its agent, None if there is no single one. `tenant`: then whose it is, None if it is all tenants'.
    """

    __tablename__ = "audit"
    audit_id: int | None = Field(default=None, primary_key=True)
    agent: str | None = Field(default=None, index=True)
    tenant: str | None = Field(default=None, index=True)
    at: float
    actor: str
    action: str
    object: str
    before: str | None = None
    after: str | None = None
    reason: str | None = None
