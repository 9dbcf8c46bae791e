"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "agent",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("is_paused", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "alias",
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("alias", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("agent", "alias"),
    )
    op.create_table(
        "audit",
        sa.Column("audit_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("object", sa.String(), nullable=False),
        sa.Column("before", sa.String(), nullable=True),
        sa.Column("after", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("audit_id"),
    )
    op.create_table(
        "blob",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "compare_job",
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("run_after", sa.Float(), nullable=False),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.Column("worker", sa.String(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("subject"),
    )
    with op.batch_alter_table("compare_job", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_compare_job_state"), ["state"], unique=False)

    op.create_table(
        "feedback",
        sa.Column("feedback_id", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("interaction_id", sa.String(), nullable=True),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("rating", sa.Float(), nullable=True),
        sa.Column("comment", sa.String(), nullable=True),
        sa.Column("correction", sa.String(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("feedback_id"),
    )
    with op.batch_alter_table("feedback", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_feedback_interaction_id"), ["interaction_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_feedback_target"), ["target"], unique=False)

    op.create_table(
        "interaction",
        sa.Column("interaction_id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=True),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("parent_id", sa.String(), nullable=True),
        sa.Column("link_rule", sa.String(), nullable=False),
        sa.Column("turn_type", sa.String(), nullable=True),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=False),
        sa.Column("finish_reason", sa.String(), nullable=True),
        sa.Column("sampling", sa.JSON(), nullable=False),
        sa.Column("message_digests", sa.JSON(), nullable=False),
        sa.Column("tools_digest", sa.String(), nullable=True),
        sa.Column("reply_digest", sa.String(), nullable=False),
        sa.Column("tail_hash", sa.String(), nullable=False),
        sa.Column("prompt_ids", sa.LargeBinary(), nullable=False),
        sa.Column("token_ids", sa.LargeBinary(), nullable=False),
        sa.Column("logprobs", sa.LargeBinary(), nullable=False),
        sa.Column("choice", sa.Integer(), nullable=False),
        sa.Column("n_choices", sa.Integer(), nullable=False),
        sa.Column("may_train", sa.Boolean(), nullable=False),
        sa.Column("is_aborted", sa.Boolean(), nullable=False),
        sa.Column("quarantine", sa.String(), nullable=True),
        sa.Column("is_ready", sa.Boolean(), nullable=False),
        sa.Column("fate", sa.String(), nullable=True),
        sa.Column("spent_step", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("interaction_id"),
    )
    with op.batch_alter_table("interaction", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_interaction_ended_at"), ["ended_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_interaction_parent_id"), ["parent_id"], unique=False)
        batch_op.create_index("ix_interaction_ready", ["agent", "is_ready", "spent_step"], unique=False)
        batch_op.create_index(batch_op.f("ix_interaction_request_id"), ["request_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_interaction_session_id"), ["session_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_interaction_tail_hash"), ["tail_hash"], unique=False)

    op.create_table(
        "judge_job",
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("run_after", sa.Float(), nullable=False),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.Column("worker", sa.String(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("subject"),
    )
    with op.batch_alter_table("judge_job", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_judge_job_state"), ["state"], unique=False)

    op.create_table(
        "judgement",
        sa.Column("judgement_id", sa.String(), nullable=False),
        sa.Column("interaction_id", sa.String(), nullable=False),
        sa.Column("judge_id", sa.String(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("score", sa.Integer(), nullable=True),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("hint", sa.String(), nullable=True),
        sa.Column("votes", sa.JSON(), nullable=False),
        sa.Column("n_failed", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("judgement_id"),
        sa.UniqueConstraint("interaction_id", "judge_id", "origin"),
    )
    with op.batch_alter_table("judgement", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_judgement_interaction_id"), ["interaction_id"], unique=False)

    op.create_table(
        "key",
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("agents", sa.JSON(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("key_id"),
        sa.UniqueConstraint("digest"),
    )
    op.create_table(
        "lease",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "load_job",
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("run_after", sa.Float(), nullable=False),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.Column("worker", sa.String(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("subject"),
    )
    with op.batch_alter_table("load_job", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_load_job_state"), ["state"], unique=False)

    op.create_table(
        "next_state",
        sa.Column("interaction_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("follower_id", sa.String(), nullable=True),
        sa.Column("message_digests", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("interaction_id"),
    )
    op.create_table(
        "replay_job",
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("run_after", sa.Float(), nullable=False),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.Column("worker", sa.String(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("subject"),
    )
    with op.batch_alter_table("replay_job", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_replay_job_state"), ["state"], unique=False)

    op.create_table(
        "rubric_job",
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("run_after", sa.Float(), nullable=False),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.Column("worker", sa.String(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("subject"),
    )
    with op.batch_alter_table("rubric_job", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_rubric_job_state"), ["state"], unique=False)

    op.create_table(
        "sample",
        sa.Column("step_id", sa.Integer(), nullable=False),
        sa.Column("interaction_id", sa.String(), nullable=False),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("reward_source", sa.String(), nullable=True),
        sa.Column("record_ids", sa.JSON(), nullable=False),
        sa.Column("hint", sa.String(), nullable=True),
        sa.Column("skipped", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("step_id", "interaction_id"),
    )
    op.create_table(
        "segment",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("offset", sa.Integer(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "session",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("quoted_id", sa.String(), nullable=True),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("last_at", sa.Float(), nullable=False),
        sa.Column("closed_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("session_id"),
    )
    with op.batch_alter_table("session", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_session_agent"), ["agent"], unique=False)
        batch_op.create_index(batch_op.f("ix_session_last_at"), ["last_at"], unique=False)

    op.create_table(
        "shadow_job",
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("run_after", sa.Float(), nullable=False),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.Column("worker", sa.String(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("subject"),
    )
    with op.batch_alter_table("shadow_job", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_shadow_job_state"), ["state"], unique=False)

    op.create_table(
        "step",
        sa.Column("step_id", sa.Integer(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("parent", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("step_id"),
        sa.UniqueConstraint("agent", "version"),
    )
    with op.batch_alter_table("step", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_step_agent"), ["agent"], unique=False)

    op.create_table(
        "version",
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("parent", sa.Integer(), nullable=False),
        sa.Column("step_id", sa.Integer(), nullable=True),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("decided_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("agent", "version"),
    )


def downgrade() -> None:
    op.drop_table("version")
    with op.batch_alter_table("step", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_step_agent"))

    op.drop_table("step")
    with op.batch_alter_table("shadow_job", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_shadow_job_state"))

    op.drop_table("shadow_job")
    with op.batch_alter_table("session", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_session_last_at"))
        batch_op.drop_index(batch_op.f("ix_session_agent"))

    op.drop_table("session")
    op.drop_table("segment")
    op.drop_table("sample")
    with op.batch_alter_table("rubric_job", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_rubric_job_state"))

    op.drop_table("rubric_job")
    with op.batch_alter_table("replay_job", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_replay_job_state"))

    op.drop_table("replay_job")
    op.drop_table("next_state")
    with op.batch_alter_table("load_job", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_load_job_state"))

    op.drop_table("load_job")
    op.drop_table("lease")
    op.drop_table("key")
    with op.batch_alter_table("judgement", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_judgement_interaction_id"))

    op.drop_table("judgement")
    with op.batch_alter_table("judge_job", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_judge_job_state"))

    op.drop_table("judge_job")
    with op.batch_alter_table("interaction", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_interaction_tail_hash"))
        batch_op.drop_index(batch_op.f("ix_interaction_session_id"))
        batch_op.drop_index(batch_op.f("ix_interaction_request_id"))
        batch_op.drop_index("ix_interaction_ready")
        batch_op.drop_index(batch_op.f("ix_interaction_parent_id"))
        batch_op.drop_index(batch_op.f("ix_interaction_ended_at"))

    op.drop_table("interaction")
    with op.batch_alter_table("feedback", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_feedback_target"))
        batch_op.drop_index(batch_op.f("ix_feedback_interaction_id"))

    op.drop_table("feedback")
    with op.batch_alter_table("compare_job", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_compare_job_state"))

    op.drop_table("compare_job")
    op.drop_table("blob")
    op.drop_table("audit")
    op.drop_table("alias")
    op.drop_table("agent")
