"""What the judges cost, by day, agent, model and purpose, and how far a step moved each of its replies."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "judge_cost",
        *(sa.Column(name, sa.String(), primary_key=True) for name in ("day", "agent", "model", "purpose")),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False)
            for name in ("n_requests", "n_votes", "n_prompt_tokens", "n_answer_tokens")
        ),
        sa.Column("seconds", sa.Float(), nullable=False),
    )
    op.add_column("sample", sa.Column("logprob_change", sa.Float(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("sample") as batch_op:
        batch_op.drop_column("logprob_change")
    op.drop_table("judge_cost")
