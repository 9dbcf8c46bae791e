"""Keys are made and revoked, and so are user tokens, which are stored nowhere. The audit log has an entry of each.

The audit log holds when the tokens of a user were revoked. An entry is needed as long as the user's oldest token may
live.
"""

import time

from sqlalchemy import func, select, update
from sqlmodel import Session, col

from burnish.adapters.registry import audit
from burnish.journal.tables import AuditRow, KeyRow
from burnish.keys import MAX_VOTE_TTL, Key
from burnish.records import digest_of_voice

ACTION = "revoke-user"


def add_key(session: Session, key: Key, *, actor: str) -> None:
    """Add a key. The caller refreshes the serving table."""
    session.add(KeyRow.of(key))
    scopes = ", ".join(sorted(key.scopes))
    audit.record(session, actor, "create-key", key.key_id, None, scopes, None, tenant=key.tenant)


def revoke_key(session: Session, row: KeyRow, *, actor: str, reason: str | None) -> None:
    """Revoke a key as of now, if it is not revoked. The caller refreshes the serving table."""
    if row.revoked_at is None:
        row.revoked_at = time.time()
        audit.record(session, actor, "revoke-key", row.key_id, None, None, reason, tenant=row.tenant)


def revoke_user(session: Session, tenant: str, user: str, *, actor: str, reason: str | None) -> int:
    """Revoke all keys and tokens of a user as of now. Returns how many keys. The caller refreshes the serving table."""
    mine = (col(KeyRow.tenant) == tenant, col(KeyRow.user) == user, col(KeyRow.revoked_at).is_(None))
    n_keys = session.connection().execute(update(KeyRow).where(*mine).values(revoked_at=time.time())).rowcount
    target = digest_of_voice((tenant, "user", user))
    audit.record(session, actor, ACTION, target, None, f"{n_keys} keys", reason, tenant=tenant)
    return int(n_keys)


def of_users(session: Session) -> dict[str, float]:
    """By digest of the voice: when its tokens were last revoked, as far as one of them may still live."""
    latest = select(col(AuditRow.object), func.max(col(AuditRow.at)))
    recent = (col(AuditRow.action) == ACTION, col(AuditRow.at) > time.time() - MAX_VOTE_TTL)
    found = session.connection().execute(latest.where(*recent).group_by(col(AuditRow.object)))
    return {str(name): float(at) for name, at in found}
