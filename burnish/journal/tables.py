"""The journal's tables. Rows that record what happened are never changed; state columns (marked) are.

Token arrays are compact binary (int32, float32, little-endian). Messages are stored once, by content hash.
"""

from typing import ClassVar

from sqlalchemy import JSON, Column, Index, LargeBinary, UniqueConstraint
from sqlmodel import Field, SQLModel


class AgentRow(SQLModel, table=True):
    """A named policy line, owned by a tenant. `settings` lays dotted keys over the configuration, for this agent alone.

    A personal agent has the agent it branches from as its `parent` and an end user of that one as its `user`. State: `settings`,
    `is_paused` (the learner takes no new step), `held` (why nothing is promoted without an operator until it is released, None where
    it is not held), `last_used_at` (when a personal agent was last asked for).
    """

    __tablename__ = "agent"
    name: str = Field(primary_key=True)
    tenant: str
    created_at: float
    is_paused: bool = False
    parent: str | None = Field(default=None, index=True)
    user: str | None = None
    settings: dict[str, object] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False, default=dict))
    held: str | None = None
    last_used_at: float | None = None


class KeyRow(SQLModel, table=True):
    """An API key, hashed. Limits of 0 mean none. `revoked_at` (state)."""

    __tablename__ = "key"
    key_id: str = Field(primary_key=True)
    digest: str = Field(unique=True)
    tenant: str
    scopes: list[str] = Field(sa_column=Column(JSON, nullable=False))
    agents: list[str] = Field(sa_column=Column(JSON, nullable=False))
    name: str = ""
    requests_per_minute: int = 0
    max_concurrent: int = 0
    created_at: float
    revoked_at: float | None = None


class BlobRow(SQLModel, table=True):
    """One message (or tool list) as JSON text, by the SHA-256 of that text."""

    __tablename__ = "blob"
    digest: str = Field(primary_key=True)
    body: str


class SegmentRow(SQLModel, table=True):
    """How far the ingester has read one segment file (state). `error` says why the rest of it cannot be read."""

    __tablename__ = "segment"
    name: str = Field(primary_key=True)
    offset: int
    error: str | None = None


class SessionRow(SQLModel, table=True):
    """One conversation. `head` is the digest of its first system prompt, `opening` the text of its first user message.

    State: `last_at`, `closed_at`, `has_tools`.
    """

    __tablename__ = "session"
    __table_args__ = (Index("ix_session_quoted", "tenant", "quoted_id"),)
    session_id: str = Field(primary_key=True)
    tenant: str
    key_id: str
    agent: str = Field(index=True)
    quoted_id: str | None = None
    started_at: float
    last_at: float = Field(index=True)
    closed_at: float | None = None
    has_tools: bool = False
    head: str | None = None
    opening: str = ""


class InteractionRow(SQLModel, table=True):
    """One recorded reply.

    `turn_type` is what the client said, `kind` what the turn is taken for; `quoted_by` the header or field that named the
    session; `n_behind` the number of messages behind the continued reply. State: `is_ready` (its reward is known), `fate` (why
    it is never trained), `spent_step`, `kind` and `kind_reason`.
    """

    __tablename__ = "interaction"
    __table_args__ = (Index("ix_interaction_ready", "agent", "is_ready", "spent_step"),)
    interaction_id: str = Field(primary_key=True)
    request_id: str = Field(index=True)
    agent: str
    version: int
    tenant: str
    key_id: str
    user: str | None = None
    session_id: str = Field(index=True)
    parent_id: str | None = Field(default=None, index=True)
    link_rule: str
    turn_type: str | None = None
    kind: str = "main"
    kind_reason: str = ""
    route: str = "chat"
    quoted_by: str | None = None
    upstream: str | None = None
    retry: int = 0
    started_at: float
    ended_at: float = Field(index=True)
    finish_reason: str | None = None
    sampling: dict[str, float | int | bool] = Field(sa_column=Column(JSON, nullable=False))
    message_digests: list[str] = Field(sa_column=Column(JSON, nullable=False))
    tools_digest: str | None = None
    reply_digest: str
    n_behind: int = 0
    request_hash: str = Field("", index=True)
    tail_hash: str = Field(index=True)
    suffix_hash: str = Field("", index=True)
    words_hash: str = Field("", index=True)
    prompt_ids: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    token_ids: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    logprobs: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    choice: int = 0
    n_choices: int = 1
    may_train: bool = True
    is_aborted: bool = False
    quarantine: str | None = None
    is_ready: bool = False
    fate: str | None = None
    spent_step: int | None = None


class NextStateRow(SQLModel, table=True):
    """What came back after one reply; `message_digests` are all trailing messages of the request that followed.

    `provenance` says of each message whose words it is, `signals` the typed facts in them (burnish.records.Signal).
    """

    __tablename__ = "next_state"
    interaction_id: str = Field(primary_key=True)
    kind: str
    follower_id: str | None = None
    message_digests: list[str] = Field(sa_column=Column(JSON, nullable=False))
    provenance: list[str] = Field(default_factory=list, sa_column=Column(JSON, nullable=False, default=list))
    signals: list[dict[str, object]] = Field(default_factory=list, sa_column=Column(JSON, nullable=False, default=list))
    created_at: float


class FeedbackRow(SQLModel, table=True):
    """What somebody said about a reply, a request or a session (`about`).

    State: `interaction_id` is None until the reply that it is about has been ingested (of a session: its last main reply), and so is
    `session_id`, that reply's; `expired_at` is set where that never happened.
    """

    __tablename__ = "feedback"
    feedback_id: str = Field(primary_key=True)
    target: str = Field(index=True)
    interaction_id: str | None = Field(default=None, index=True)
    session_id: str | None = Field(default=None, index=True)
    tenant: str
    key_id: str
    source: str
    rating: float | None = None
    comment: str | None = None
    correction: str | None = None
    about: str = "response"
    score: float | None = None
    outcome: float | None = None
    label: str | None = None
    demonstration: str | None = None
    is_deleted: bool = False
    expired_at: float | None = None
    created_at: float


class JudgementRow(SQLModel, table=True):
    """A judge's word on one turn, once per judge and origin (next state or feedback)."""

    __tablename__ = "judgement"
    __table_args__ = (UniqueConstraint("interaction_id", "judge_id", "origin"),)
    judgement_id: str = Field(primary_key=True)
    interaction_id: str = Field(index=True)
    judge_id: str
    origin: str
    score: int | None = None
    confidence: float
    hint: str | None = None
    votes: list[int | None] = Field(sa_column=Column(JSON, nullable=False))
    n_failed: int
    created_at: float
    reason: str | None = None
    hint_fate: str | None = None
    findings: list[str] = Field(default_factory=list, sa_column=Column(JSON, nullable=False, default=list))
    candidates: list[str] = Field(default_factory=list, sa_column=Column(JSON, nullable=False, default=list))


class StepRow(SQLModel, table=True):
    """One training step. Inserting it allocates `version`; `outcome`, `reason`, `metrics`, `monitors`, `level`, `ended_at` are state.

    `monitors` tells of each monitor its level, value and why; `level` is the worst of them, None before the step ended.
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
    """One row of one step, with its reward and the ids of the reward records as they stood then.

    `hint_fate` is the code for which the teacher refused the hint, None where it did not. `weight` is what the caps left the row of its
    say (1: all), `n_earlier` how many of its user's turns earlier steps had spent.
    """

    __tablename__ = "sample"
    step_id: int = Field(primary_key=True)
    interaction_id: str = Field(primary_key=True)
    reward: float | None = None
    reward_source: str | None = None
    record_ids: list[str] = Field(sa_column=Column(JSON, nullable=False))
    hint: str | None = None
    hint_fate: str | None = None
    skipped: str | None = None
    weight: float | None = None
    n_earlier: int | None = None


class ShadowGroupRow(SQLModel, table=True):
    """A live reply and the replies drawn beside it (`ShadowRow`) to the same prompt by the same version: a group of `n_members` in all.

    `sampling` is the live reply's. `wish` is the accepted hint that the members are scored on, empty for none, `record_id` the judgement
    that holds it. State: `state` (burnish.records.GroupState), `reason` (why it was dropped), `n_tokens` (drawn for it so far), `score`
    (the live reply's, in [0, 1]), `judge_id`, `votes` (grades by vote, in the members' order), `spent_step`,
    `drawn_at` (when tokens were last drawn for it).
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


class ShadowRow(SQLModel, table=True):
    """A reply that nobody was shown, exactly as sampled; `member` counts from 1, the live reply being member 0. State: `score`."""

    __tablename__ = "shadow"
    interaction_id: str = Field(primary_key=True, foreign_key="shadow_group.interaction_id", ondelete="CASCADE")
    member: int = Field(primary_key=True)
    reply_digest: str
    finish_reason: str
    token_ids: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    logprobs: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    score: float | None = None


class GroupSampleRow(SQLModel, table=True):
    """One group of one step, with its members' scores as they stood then, the live reply's first.

    State: `skipped` (why it carried no term), `weight` (what the caps left it of its say, None for all).
    """

    __tablename__ = "group_sample"
    step_id: int = Field(primary_key=True)
    interaction_id: str = Field(primary_key=True)
    scores: list[float] = Field(sa_column=Column(JSON, nullable=False))
    skipped: str | None = None
    weight: float | None = None


class VersionRow(SQLModel, table=True):
    """An adapter version that was published. `parent` is a version of `parent_agent`, None for the same agent.

    `origin`: made by a `step`, an `import`, or a `branch` from another agent's version. State: `state`, `evidence`, `reason`,
    `decided_at`, `is_pinned` (never removed, whatever else goes), `removed_at` (its files are gone; the row stays, so that its number
    and rows stay spent).
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
    """A candidate's reply to a held-out live turn beside the live version's (`baseline`), and the judge's word on which is better.

    `outcome`: 1 the candidate's, −1 the other, 0 neither; None while nobody has said, or where the judge abstained (then with a reason).
    State: everything from `outcome` on.
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
    """A version that is watched beside another (`baseline`) while it answers real requests.

    `kind`: `canary` (a share of the traffic, before promotion), `shadow` (answers that nobody sees) or `watch` (after promotion). State:
    `share` (0 to 1), `state` (running, passed, stopped, skipped, cancelled), `evidence`, `reason`, `ended_at`.
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
    """Every change of what is served, written in the transaction that makes it. `agent`: whose, None where it is nobody's alone."""

    __tablename__ = "audit"
    audit_id: int | None = Field(default=None, primary_key=True)
    agent: str | None = Field(default=None, index=True)
    at: float
    actor: str
    action: str
    object: str
    before: str | None = None
    after: str | None = None
    reason: str | None = None


class LeaseRow(SQLModel, table=True):
    """Who may do what only one process may do at a time (state)."""

    __tablename__ = "lease"
    name: str = Field(primary_key=True)
    holder: str
    until: float


class JobRow(SQLModel):
    """The columns of every job table. `subject` names the work once; all but it and `payload` are state."""

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
