"""The indexes of hashes begin with the week: new turns change neighbouring pages. Open sessions and turns that are kept
out of training have indexes of their own.
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None
HASHES = ("request", "tail", "suffix", "words")
KEPT_OUT = ("tail", "suffix")


def upgrade() -> None:
    for name in HASHES:
        op.drop_index(f"ix_interaction_latest_{name}", "interaction")
        columns: list[str | sa.TextClause] = [sa.text("round(ended_at / 604800)"), f"{name}_hash", "ended_at"]
        op.create_index(f"ix_interaction_week_{name}", "interaction", columns)
    kept_out = sa.text("(may_train = FALSE OR skip_reason = 'opted out with an earlier turn')")
    for name in KEPT_OUT:
        op.create_index(
            f"ix_interaction_kept_out_{name}",
            "interaction",
            [f"{name}_hash", "ended_at"],
            sqlite_where=kept_out,
            postgresql_where=kept_out,
        )
    is_open = sa.text("closed_at IS NULL")
    op.create_index("ix_session_open", "session", ["last_at"], sqlite_where=is_open, postgresql_where=is_open)


def downgrade() -> None:
    op.drop_index("ix_session_open", "session")
    for name in KEPT_OUT:
        op.drop_index(f"ix_interaction_kept_out_{name}", "interaction")
    for name in HASHES:
        op.drop_index(f"ix_interaction_week_{name}", "interaction")
        op.create_index(f"ix_interaction_latest_{name}", "interaction", [f"{name}_hash", "ended_at"])
