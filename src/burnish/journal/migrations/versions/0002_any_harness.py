"""How a turn came in, its kind, what links it to the turn before, and the limits of keys."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_NEW: dict[str, list[sa.Column[Any]]] = {
    "key": [
        sa.Column("requests_per_minute", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("max_concurrent", sa.Integer(), nullable=False, server_default="0"),
    ],
    "session": [
        sa.Column("has_tools", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("head", sa.String(), nullable=True),
        sa.Column("opening", sa.String(), nullable=False, server_default=""),
    ],
    "interaction": [
        sa.Column("kind", sa.String(), nullable=False, server_default="main"),
        sa.Column("kind_reason", sa.String(), nullable=False, server_default=""),
        sa.Column("route", sa.String(), nullable=False, server_default="chat"),
        sa.Column("quoted_by", sa.String(), nullable=True),
        sa.Column("upstream", sa.String(), nullable=True),
        sa.Column("retry", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("n_behind", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("request_hash", sa.String(), nullable=False, server_default=""),
        sa.Column("suffix_hash", sa.String(), nullable=False, server_default=""),
        sa.Column("words_hash", sa.String(), nullable=False, server_default=""),
    ],
}
_INDEXED = ("request_hash", "suffix_hash", "words_hash")


def upgrade() -> None:
    for table, columns in _NEW.items():
        with op.batch_alter_table(table) as batch_op:
            for column in columns:
                batch_op.add_column(column)
        # The defaults were for the rows that are there. New rows bring their own values.
        with op.batch_alter_table(table) as batch_op:
            for column in columns:
                if not column.nullable:
                    batch_op.alter_column(column.name, existing_type=column.type, server_default=None)
    with op.batch_alter_table("interaction") as batch_op:
        for name in _INDEXED:
            batch_op.create_index(batch_op.f(f"ix_interaction_{name}"), [name], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("interaction") as batch_op:
        for name in _INDEXED:
            batch_op.drop_index(batch_op.f(f"ix_interaction_{name}"))
    for table, columns in _NEW.items():
        with op.batch_alter_table(table) as batch_op:
            for column in columns:
                batch_op.drop_column(column.name)
