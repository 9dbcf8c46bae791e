"""Entries of the audit log about no agent say whose tenant they are, and deleted feedback says which key deleted it."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("audit", sa.Column("tenant", sa.String(), nullable=True))
    op.add_column("feedback", sa.Column("deleted_by", sa.String(), nullable=True))
    op.create_index("ix_audit_tenant", "audit", ["tenant"])
    # a key acts in its own tenant only; two keys are files
    op.execute(
        'UPDATE audit SET tenant = COALESCE((SELECT tenant FROM "key" WHERE "key".key_id = audit.actor), '
        "CASE WHEN actor IN ('admin', 'ui') THEN 'default' END) "
        "WHERE agent IS NULL AND action IN ('forget', 'forgotten', 'opt-out', 'opt-in', 'revoke-user')"
    )


def downgrade() -> None:
    op.drop_index("ix_audit_tenant", "audit")
    with op.batch_alter_table("feedback") as batch_op:
        batch_op.drop_column("deleted_by")
    with op.batch_alter_table("audit") as batch_op:
        batch_op.drop_column("tenant")
