"""The latest accepted hints, for shadow groups on what users wished before."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_judgement_hinted", "judgement", ["hint_fate", "created_at"])


def downgrade() -> None:
    op.drop_index("ix_judgement_hinted", "judgement")
