"""A shadow group may hold the base's own reply to its prompt."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("shadow_group", sa.Column("reference", sa.String(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("shadow_group") as batch_op:
        batch_op.drop_column("reference")
