"""Turns that wait for a step have an index of their own. The one before also held every turn that was trained on or
left out, and grew with the journal.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("ix_interaction_ready", "interaction")
    op.create_index(
        "ix_interaction_waiting",
        "interaction",
        ["agent", "ended_at"],
        sqlite_where=sa.text("is_ready IS 1 AND spent_step IS NULL AND skip_reason IS NULL"),
        postgresql_where=sa.text("is_ready IS true AND spent_step IS NULL AND skip_reason IS NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_interaction_waiting", "interaction")
    op.create_index("ix_interaction_ready", "interaction", ["agent", "is_ready", "spent_step"])
