"""A prompt's parts are stored once. The prompts of earlier turns stay whole."""

import sqlalchemy as sa
from alembic import op

from burnish.errors import JournalError

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "prompt_part",
        sa.Column("digest", sa.String(), primary_key=True),
        sa.Column("ids", sa.LargeBinary(), nullable=False),
    )
    op.execute("ALTER TABLE interaction RENAME COLUMN prompt_ids TO prompt_rest")
    op.add_column("interaction", sa.Column("prompt_parts", sa.JSON(), nullable=False, server_default="[]"))


def downgrade() -> None:
    turn = sa.table(
        "interaction",
        sa.column("interaction_id", sa.String()),
        sa.column("prompt_parts", sa.JSON()),
        sa.column("prompt_rest", sa.LargeBinary()),
    )
    part = sa.table("prompt_part", sa.column("digest", sa.String()), sa.column("ids", sa.LargeBinary()))
    connection = op.get_bind()
    has_parts = sa.func.json_array_length(turn.c.prompt_parts) > 0
    for name in connection.scalars(sa.select(turn.c.interaction_id).where(has_parts)).all():
        mine = turn.c.interaction_id == name
        digests, rest = connection.execute(sa.select(turn.c.prompt_parts, turn.c.prompt_rest).where(mine)).one()
        wanted = sa.select(part.c.digest, part.c.ids).where(part.c.digest.in_(digests))
        parts = dict(connection.execute(wanted).tuples().all())
        if missing := set(digests) - parts.keys():
            raise JournalError(f"{name}: {len(missing)} parts of its prompt are gone; restore a backup")
        whole = b"".join([*(parts[digest] for digest in digests), rest])
        connection.execute(sa.update(turn).where(mine).values(prompt_rest=whole))
    op.drop_column("interaction", "prompt_parts")
    op.execute("ALTER TABLE interaction RENAME COLUMN prompt_rest TO prompt_ids")
    op.drop_table("prompt_part")
