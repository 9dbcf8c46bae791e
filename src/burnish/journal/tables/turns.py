"""Turns and what came back: messages, segments, sessions, turns, next states, feedback, judgements."""

from sqlalchemy import JSON, BigInteger, Column, Index, LargeBinary, UniqueConstraint, text
from sqlmodel import Field, SQLModel

WEEK_SECONDS = 604_800
WEEK = f"round({{0}} / {WEEK_SECONDS})"
"""The number of the week of a time, as a float. It begins on another weekday than calendars' weeks."""
OPTED_OUT_BEFORE = "opted out with an earlier turn"
"""The text of a turn that is kept out of training stands in the prompts of all turns after it."""
KEPT_OUT = f"({{0}}may_train = FALSE OR {{0}}skip_reason = '{OPTED_OUT_BEFORE}')"
"""Turns that are kept out of training by their users' word."""


class BlobRow(SQLModel, table=True):
    """One message (or tool list) as JSON text, by the SHA-256 of that text, whose first digits may be the day
    (src/burnish/journal/blobs.py).
    """

    __tablename__ = "blob"
    digest: str = Field(primary_key=True)
    body: str


class PromptPartRow(SQLModel, table=True):
    """Some token ids of prompts, by the day and the first 40 hex digits of their SHA-256
    (src/burnish/journal/blobs.py)."""

    __tablename__ = "prompt_part"
    digest: str = Field(primary_key=True)
    ids: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class SegmentRow(SQLModel, table=True):
    """How far the ingester has read one segment file (state). `error` says why the rest cannot be read."""

    __tablename__ = "segment"
    name: str = Field(primary_key=True)
    offset: int
    error: str | None = None


class SessionRow(SQLModel, table=True):
    """One conversation. `head` is the digest of its first system prompt, `opening` the text of its first user message.

    State: `last_at`, `closed_at`, `has_tools`.
    """

    __tablename__ = "session"
    __table_args__ = (
        Index("ix_session_quoted", "tenant", "quoted_id"),
        Index(
            "ix_session_open",
            "last_at",
            sqlite_where=text("closed_at IS NULL"),
            postgresql_where=text("closed_at IS NULL"),
        ),
    )
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

    `user` is proved, `quoted_user` the client's word. `turn_type` is the client's word, `kind` the kind that Burnish
    uses. `quoted_by` is the header or field that named the session. `n_behind` is the number of messages after the
    continued reply. The prompt's ids are those of `prompt_parts`, then `prompt_rest`. `traceparent` names the client's
    span. State: `is_ready` (its reward is known), `skip_reason` (why it is never trained on), `spent_step`, `kind` and
    `kind_reason`, `may_train` (until its user opts out, whether a step has used it or not).
    """

    __tablename__ = "interaction"
    __table_args__ = (
        Index(
            "ix_interaction_waiting",  # as `waiting` in src/burnish/journal/turns.py asks
            "agent",
            "ended_at",
            sqlite_where=text("is_ready IS 1 AND spent_step IS NULL AND skip_reason IS NULL"),
            postgresql_where=text("is_ready IS true AND spent_step IS NULL AND skip_reason IS NULL"),
        ),
        Index("ix_interaction_of_agent", "agent", "ended_at", "version"),
        Index("ix_interaction_week_request", text(WEEK.format("ended_at")), "request_hash", "ended_at"),
        Index("ix_interaction_week_tail", text(WEEK.format("ended_at")), "tail_hash", "ended_at"),
        Index("ix_interaction_week_suffix", text(WEEK.format("ended_at")), "suffix_hash", "ended_at"),
        Index("ix_interaction_week_words", text(WEEK.format("ended_at")), "words_hash", "ended_at"),
        *(
            Index(
                f"ix_interaction_kept_out_{name}",
                f"{name}_hash",
                "ended_at",
                sqlite_where=text(KEPT_OUT.format("")),
                postgresql_where=text(KEPT_OUT.format("")),
            )
            for name in ("tail", "suffix")
        ),
    )
    interaction_id: str = Field(primary_key=True)
    request_id: str = Field(index=True)
    agent: str
    version: int
    tenant: str
    key_id: str
    user: str | None = None
    quoted_user: str | None = None
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
    request_hash: str = ""
    tail_hash: str
    suffix_hash: str = ""
    words_hash: str = ""
    prompt_parts: list[str] = Field(
        default_factory=list, sa_column=Column(JSON, nullable=False, server_default="[]", default=list)
    )
    prompt_rest: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    token_ids: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    logprobs: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    choice: int = 0
    n_choices: int = 1
    may_train: bool = True
    is_aborted: bool = False
    quarantine: str | None = None
    is_ready: bool = False
    skip_reason: str | None = None
    spent_step: int | None = None
    traceparent: str | None = None


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
    """Feedback on a reply, a request or a session (`about`). `user` is proved.

    State: `interaction_id` is None until the reply is ingested (for a session: its last main reply), and so is
    `session_id`, that reply's session. `expired_at` is set if that never happened. `deleted_by` is the key that deleted
    it.
    """

    __tablename__ = "feedback"
    __table_args__ = (Index("ix_feedback_newest", "tenant", "created_at"),)
    feedback_id: str = Field(primary_key=True)
    target: str = Field(index=True)
    interaction_id: str | None = Field(default=None, index=True)
    session_id: str | None = Field(default=None, index=True)
    tenant: str
    key_id: str
    user: str | None = None
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
    deleted_by: str | None = None
    expired_at: float | None = None
    created_at: float


class JudgeCheckRow(SQLModel, table=True):
    """Whether a judge may speak. A judge is filed before it is asked; its verdicts count only while it is fit.

    `judge_id` names the model and the hash of its prompt, `stands_for` the model behind that name, `golden` the digest
    of the golden set. State: `state` (burnish.records.Fitness), `reason`, `figures` and `checked_at`.
    """

    __tablename__ = "judge_check"
    judge_id: str = Field(primary_key=True)
    model: str
    stands_for: str
    golden: str
    state: str
    reason: str = ""
    figures: dict[str, object] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False, default=dict))
    checked_at: float | None = None


class JudgeCostRow(SQLModel, table=True):
    """What one judging model has cost in one day (UTC), by the agent whose turns it judged and by what it was asked for
    (burnish.records.JudgedFor). A personal agent counts as its parent. The check of a judge has the agent "".

    Tokens are counted by the model's server. `seconds` are waited for answers, added up. All of it is state.
    """

    __tablename__ = "judge_cost"
    day: str = Field(primary_key=True)
    agent: str = Field(primary_key=True)
    model: str = Field(primary_key=True)
    purpose: str = Field(primary_key=True)
    n_requests: int = Field(sa_type=BigInteger)
    n_votes: int = Field(sa_type=BigInteger)
    n_prompt_tokens: int = Field(sa_type=BigInteger)
    n_answer_tokens: int = Field(sa_type=BigInteger)
    seconds: float


class JudgementRow(SQLModel, table=True):
    """A judge's verdict on one turn, once per judge and origin (next state or feedback)."""

    __tablename__ = "judgement"
    __table_args__ = (
        UniqueConstraint("interaction_id", "judge_id", "origin"),
        Index("ix_judgement_hinted", "hint_status", "created_at"),
    )
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
    hint_status: str | None = None
    findings: list[str] = Field(default_factory=list, sa_column=Column(JSON, nullable=False, default=list))
    candidates: list[str] = Field(default_factory=list, sa_column=Column(JSON, nullable=False, default=list))
