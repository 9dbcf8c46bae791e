"""A turn keeps the client's span, so that the trace of a request goes on to the version that learned from it."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("interaction", sa.Column("traceparent", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("interaction", "traceparent")
