"""Erasures, and opt-outs of keys and users. Keys of before are recorded and train."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None
_OPT_OUTS = ("may_train", "may_record")


def upgrade() -> None:
    for name in _OPT_OUTS:
        op.add_column("key", sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.true()))
    with op.batch_alter_table("key") as batch_op:
        for name in _OPT_OUTS:
            batch_op.alter_column(name, server_default=None)
    op.create_table(
        "opt_out",
        sa.Column("voice", sa.String(), nullable=False),
        sa.Column("may_record", sa.Boolean(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("voice"),
    )
    op.create_table(
        "erasure_job",
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
    op.create_index("ix_erasure_job_state", "erasure_job", ["state"])


def downgrade() -> None:
    op.drop_table("erasure_job")
    op.drop_table("opt_out")
    for name in _OPT_OUTS:
        op.drop_column("key", name)
