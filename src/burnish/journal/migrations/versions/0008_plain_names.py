"""Columns in plain words: why a turn is not trained on, and what became of a hint."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None
_RENAMED = (
    ("interaction", "fate", "skip_reason"),
    ("judgement", "hint_fate", "hint_status"),
    ("sample", "hint_fate", "hint_status"),
)


def upgrade() -> None:
    for table, old, new in _RENAMED:
        op.alter_column(table, old, new_column_name=new)


def downgrade() -> None:
    for table, old, new in _RENAMED:
        op.alter_column(table, new, new_column_name=old)
