"""Checks of judges. The journal's judges are unchecked: their verdicts count again once a check finds them fit."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    checks = op.create_table(
        "judge_check",
        sa.Column("judge_id", sa.String(), primary_key=True),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("stands_for", sa.String(), nullable=False),
        sa.Column("golden", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("figures", sa.JSON(), nullable=False),
        sa.Column("checked_at", sa.Float(), nullable=True),
    )
    judgement = sa.table("judgement", sa.column("judge_id", sa.String()))
    found = sa.select(judgement.c.judge_id).where(judgement.c.judge_id.not_like("prefilter/%")).distinct()
    blank: dict[str, object] = {
        "stands_for": "",
        "golden": "",
        "state": "unchecked",
        "reason": "",
        "figures": {},
        "checked_at": None,
    }
    rows = [
        {"judge_id": name, "model": name.rpartition("/")[0], **blank} for name in op.get_bind().execute(found).scalars()
    ]
    if rows:
        op.bulk_insert(checks, rows)


def downgrade() -> None:
    op.drop_table("judge_check")
