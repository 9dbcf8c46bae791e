"""Proved users. No name in the journal was proved, so each becomes what the client said, `quoted_user`."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None
_NEW = ("interaction", "feedback", "key")


def upgrade() -> None:
    op.alter_column("interaction", "user", new_column_name="quoted_user")
    for table in _NEW:
        op.add_column(table, sa.Column("user", sa.String(), nullable=True))


def downgrade() -> None:
    for table in _NEW:
        op.drop_column(table, "user")
    op.alter_column("interaction", "quoted_user", new_column_name="user")
