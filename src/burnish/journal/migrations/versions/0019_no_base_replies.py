"""A shadow group holds no reply of the base any more."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_column("shadow_group", "reference")


def downgrade() -> None:
    op.add_column("shadow_group", sa.Column("reference", sa.String(), nullable=True))
