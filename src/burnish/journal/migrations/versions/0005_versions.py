"""Agents with settings and holds, pinned and removed versions, canaries, comparisons, monitors, lists of hints."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None
_NEW: dict[str, tuple[tuple[str, Any, str | None], ...]] = {
    "agent": (
        ("parent", sa.String(), None),
        ("user", sa.String(), None),
        ("settings", sa.JSON(), "{}"),
        ("held", sa.String(), None),
        ("last_used_at", sa.Float(), None),
    ),
    "judgement": (("candidates", sa.JSON(), "[]"),),
    "step": (("monitors", sa.JSON(), "{}"), ("level", sa.String(), None)),
    "sample": (("weight", sa.Float(), None), ("n_earlier", sa.Integer(), None)),
    "version": (
        ("origin", sa.String(), "step"),
        ("parent_agent", sa.String(), None),
        ("is_pinned", sa.Boolean(), "false"),
        ("removed_at", sa.Float(), None),
    ),
    "audit": (("agent", sa.String(), None),),
}
"""Table to its new columns: name, type, and what the rows that are there get (None: NULL)."""


def upgrade() -> None:
    for table, columns in _NEW.items():
        with op.batch_alter_table(table) as batch_op:
            for name, kind, filled in columns:
                default = sa.false() if filled == "false" else filled
                batch_op.add_column(sa.Column(name, kind, nullable=filled is None, server_default=default))
        with op.batch_alter_table(table) as batch_op:  # the default was for the rows that were there
            for name, kind, filled in columns:
                if filled is not None:
                    batch_op.alter_column(name, existing_type=kind, existing_nullable=False, server_default=None)
    with op.batch_alter_table("agent") as batch_op:
        batch_op.create_index("ix_agent_parent", ["parent"])
    with op.batch_alter_table("audit") as batch_op:
        batch_op.create_index("ix_audit_agent", ["agent"])
    with op.batch_alter_table("session") as batch_op:
        batch_op.create_index("ix_session_quoted", ["tenant", "quoted_id"])
    op.create_table(
        "comparison",
        sa.Column("agent", sa.String(), primary_key=True),
        sa.Column("version", sa.Integer(), primary_key=True),
        sa.Column("interaction_id", sa.String(), primary_key=True),
        sa.Column("baseline", sa.Integer(), nullable=False),
        sa.Column("candidate_digest", sa.String(), nullable=False),
        sa.Column("baseline_digest", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("outcome", sa.Integer(), nullable=True),
        sa.Column("judge_id", sa.String(), nullable=True),
        sa.Column("votes", sa.JSON(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
    )
    op.create_table(
        "canary",
        sa.Column("canary_id", sa.Integer(), primary_key=True),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("baseline", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("share", sa.Float(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
    )
    op.create_index("ix_canary_agent", "canary", ["agent", "state"])


def downgrade() -> None:
    op.drop_index("ix_canary_agent", "canary")
    op.drop_table("canary")
    op.drop_table("comparison")
    with op.batch_alter_table("session") as batch_op:
        batch_op.drop_index("ix_session_quoted")
    with op.batch_alter_table("audit") as batch_op:
        batch_op.drop_index("ix_audit_agent")
    with op.batch_alter_table("agent") as batch_op:
        batch_op.drop_index("ix_agent_parent")
    for table, columns in _NEW.items():
        with op.batch_alter_table(table) as batch_op:
            for name, _, _ in columns:
                batch_op.drop_column(name)
