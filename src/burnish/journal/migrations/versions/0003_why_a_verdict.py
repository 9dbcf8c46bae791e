"""Why a verdict is what it is: the rule that gave it, or why the votes did not count."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("judgement") as batch_op:
        batch_op.add_column(sa.Column("reason", sa.String(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("judgement") as batch_op:
        batch_op.drop_column("reason")
