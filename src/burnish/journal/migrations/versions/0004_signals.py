"""Provenance and signals of next states, feedback on requests and sessions, the status of hints, findings."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None
_FILLED: tuple[tuple[str, str, Any], ...] = (
    ("next_state", "provenance", sa.JSON()),
    ("next_state", "signals", sa.JSON()),
    ("feedback", "about", sa.String()),
    ("feedback", "is_deleted", sa.Boolean()),
    ("judgement", "findings", sa.JSON()),
)


def upgrade() -> None:
    with op.batch_alter_table("next_state") as batch_op:
        batch_op.add_column(sa.Column("provenance", sa.JSON(), nullable=False, server_default="[]"))
        batch_op.add_column(sa.Column("signals", sa.JSON(), nullable=False, server_default="[]"))
    with op.batch_alter_table("feedback") as batch_op:
        batch_op.add_column(sa.Column("session_id", sa.String(), nullable=True))
        batch_op.create_index("ix_feedback_session_id", ["session_id"])
        batch_op.add_column(sa.Column("about", sa.String(), nullable=False, server_default="response"))
        batch_op.add_column(sa.Column("score", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("outcome", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("label", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("demonstration", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("is_deleted", sa.Boolean(), nullable=False, server_default=sa.false()))
        batch_op.add_column(sa.Column("expired_at", sa.Float(), nullable=True))
    with op.batch_alter_table("judgement") as batch_op:
        batch_op.add_column(sa.Column("hint_fate", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("findings", sa.JSON(), nullable=False, server_default="[]"))
    with op.batch_alter_table("sample") as batch_op:
        batch_op.add_column(sa.Column("hint_fate", sa.String(), nullable=True))
    for table, name, kind in _FILLED:  # the default was for the rows that were there
        with op.batch_alter_table(table) as batch_op:
            batch_op.alter_column(name, existing_type=kind, existing_nullable=False, server_default=None)
    # A hint that was stored under the earlier rule (a user's own words) stays what it was.
    op.execute("UPDATE judgement SET hint_fate = 'accepted' WHERE hint IS NOT NULL")


def downgrade() -> None:
    with op.batch_alter_table("sample") as batch_op:
        batch_op.drop_column("hint_fate")
    with op.batch_alter_table("judgement") as batch_op:
        batch_op.drop_column("findings")
        batch_op.drop_column("hint_fate")
    with op.batch_alter_table("feedback") as batch_op:
        batch_op.drop_index("ix_feedback_session_id")
        for name in ("session_id", "expired_at", "is_deleted", "demonstration", "label", "outcome", "score", "about"):
            batch_op.drop_column(name)
    with op.batch_alter_table("next_state") as batch_op:
        batch_op.drop_column("signals")
        batch_op.drop_column("provenance")
