"""An agent's turns and a tenant's feedback are listed newest first without a scan."""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_interaction_of_agent", "interaction", ["agent", "ended_at", "version"])
    op.create_index("ix_feedback_newest", "feedback", ["tenant", "created_at"])


def downgrade() -> None:
    op.drop_index("ix_feedback_newest", "feedback")
    op.drop_index("ix_interaction_of_agent", "interaction")
