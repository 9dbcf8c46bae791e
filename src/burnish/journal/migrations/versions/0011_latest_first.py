"""The latest of the replies that are alike come first, and the steps of one turn are found without a scan."""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_HASHES = ("request", "tail", "suffix", "words")


def upgrade() -> None:
    for name in _HASHES:
        op.create_index(f"ix_interaction_latest_{name}", "interaction", [f"{name}_hash", "ended_at"])
        op.drop_index(f"ix_interaction_{name}_hash", "interaction")
    op.create_index("ix_sample_interaction_id", "sample", ["interaction_id"])


def downgrade() -> None:
    op.drop_index("ix_sample_interaction_id", "sample")
    for name in _HASHES:
        op.create_index(f"ix_interaction_{name}_hash", "interaction", [f"{name}_hash"])
        op.drop_index(f"ix_interaction_latest_{name}", "interaction")
