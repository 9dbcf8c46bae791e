"""Shadow groups: more replies to a live prompt, their scores, and the steps that used them."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "shadow_group",
        sa.Column(
            "interaction_id",
            sa.String(),
            sa.ForeignKey("interaction.interaction_id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("sampling", sa.JSON(), nullable=False),
        sa.Column("n_members", sa.Integer(), nullable=False),
        sa.Column("wish", sa.String(), nullable=False),
        sa.Column("record_id", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("n_tokens", sa.Integer(), nullable=False),
        sa.Column("score", sa.Float(), nullable=True),
        sa.Column("judge_id", sa.String(), nullable=True),
        sa.Column("votes", sa.JSON(), nullable=False),
        sa.Column("spent_step", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("drawn_at", sa.Float(), nullable=True),
    )
    op.create_index("ix_shadow_group_state", "shadow_group", ["agent", "state"])
    op.create_index("ix_shadow_group_drawn_at", "shadow_group", ["drawn_at"])
    op.create_table(
        "shadow",
        sa.Column(
            "interaction_id",
            sa.String(),
            sa.ForeignKey("shadow_group.interaction_id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("member", sa.Integer(), primary_key=True),
        sa.Column("reply_digest", sa.String(), nullable=False),
        sa.Column("finish_reason", sa.String(), nullable=False),
        sa.Column("token_ids", sa.LargeBinary(), nullable=False),
        sa.Column("logprobs", sa.LargeBinary(), nullable=False),
        sa.Column("score", sa.Float(), nullable=True),
    )
    op.create_table(
        "group_sample",
        sa.Column("step_id", sa.Integer(), primary_key=True),
        sa.Column("interaction_id", sa.String(), primary_key=True),
        sa.Column("scores", sa.JSON(), nullable=False),
        sa.Column("skipped", sa.String(), nullable=True),
        sa.Column("weight", sa.Float(), nullable=True),
    )


def downgrade() -> None:
    op.drop_table("group_sample")
    op.drop_table("shadow")
    op.drop_index("ix_shadow_group_drawn_at", "shadow_group")
    op.drop_index("ix_shadow_group_state", "shadow_group")
    op.drop_table("shadow_group")
