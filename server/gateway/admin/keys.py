"""Keys over HTTP: the verbs of `burnish keys`."""

from typing import Any

from fastapi import APIRouter, Depends
from pydantic import Field
from sqlalchemy import select
from sqlmodel import col

from burnish.adapters.registry import revocations
from burnish.adapters.serving.prepare import refresh
from burnish.config import Settings
from burnish.errors import NotAllowed, NotFound, RequestError
from burnish.journal import Journal
from burnish.journal.tables import KeyRow
from burnish.keys import MAX_USER, Scope, mint
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.access.need import Reach
from burnish.server.gateway.admin.caller import Access
from burnish.server.gateway.admin.field_types import Body, Text


class NewKey(Body):
    """A new key of the caller's tenant."""

    scopes: list[Scope] = Field(min_length=1, max_length=6, description="What it may do.")
    name: Text = Field("", description="A name for the key.")
    agents: list[str] = Field(default_factory=list, max_length=100, description="Agents that it may use; empty: all.")
    user: str | None = Field(
        None, min_length=1, max_length=MAX_USER, pattern=r"^[^\x00]+$", description="Make it for one user."
    )
    may_train: bool = Field(True, description="Whether its turns may be trained on.")
    may_record: bool = Field(True, description="Whether its turns are recorded; without, none is trained on.")
    requests_per_minute: int = Field(0, ge=0, le=2**31 - 1, description="0: no limit.")
    max_concurrent: int = Field(0, ge=0, le=2**31 - 1, description="Requests at the same time; 0: no limit.")


class Revocation(Body):
    """What to revoke: a key, or all keys and user tokens of a user. Exactly one of the two."""

    key_id: Text | None = Field(None, description="The key's id, as the list shows it.")
    user: Text | None = Field(None, min_length=1, description="The user.")
    reason: Text | None = Field(None, description="Kept in the audit log.")


def router(settings: Settings, journal: Journal, access: Access) -> APIRouter:
    """`GET` and `POST /keys`, and `POST /keys/revoke`."""
    may_change = Depends(access.anywhere(Scope.ADMIN, Reach.TENANT))
    made = APIRouter()

    @made.get("/keys")
    def list_keys(caller: Caller = may_change) -> dict[str, Any]:
        """The tenant's keys without their secrets, the newest first, at most 1,000."""
        _check_unlimited(caller)
        mine = select(KeyRow).where(col(KeyRow.tenant) == caller.tenant).order_by(col(KeyRow.created_at).desc())
        with journal.read() as session:
            return {"keys": [row.model_dump(exclude={"digest"}) for row in session.scalars(mine.limit(1000))]}

    @made.post("/keys")
    def create_key(body: NewKey, caller: Caller = may_change) -> dict[str, Any]:
        """Make a key. Its secret is in this answer and nowhere else."""
        _check_unlimited(caller)
        secret, key = mint(
            body.scopes,
            tenant=caller.tenant,
            agents=body.agents,
            name=body.name,
            requests_per_minute=body.requests_per_minute,
            max_concurrent=body.max_concurrent,
            user=body.user,
            may_train=body.may_train,
            may_record=body.may_record,
        )
        with journal.write() as session:
            revocations.add_key(session, key, actor=caller.key_id)
        refresh(settings, journal)
        return {"key_id": key.key_id, "secret": secret, "scopes": sorted(key.scopes), "tenant": key.tenant}

    @made.post("/keys/revoke")
    def revoke_key(body: Revocation, caller: Caller = may_change) -> dict[str, Any]:
        """Revoke a key, or all keys and tokens of a user, at once."""
        _check_unlimited(caller)
        if (body.key_id is None) == (body.user is None):
            raise RequestError("expected either key_id or user", code="invalid_value")
        if body.user is not None:
            with journal.write() as session:
                who = (caller.tenant, body.user)
                n_keys = revocations.revoke_user(session, *who, actor=caller.key_id, reason=body.reason)
            refresh(settings, journal)
            return {"status": f"revoked {n_keys} keys and all tokens of the user", "user": body.user, "n_keys": n_keys}
        assert body.key_id is not None
        with journal.write() as session:
            row = session.get(KeyRow, body.key_id)
            if row is None or row.tenant != caller.tenant:
                raise NotFound(f"there is no key {body.key_id[:80]!r} of this tenant", code="key_not_found")
            revocations.revoke_key(session, row, actor=caller.key_id, reason=body.reason)
        refresh(settings, journal)
        return {"status": f"revoked {body.key_id}", "key_id": body.key_id}

    return made


def _check_unlimited(caller: Caller) -> None:
    """Raises NotAllowed for a key that is limited to some agents: it could make itself one that is not."""
    if caller.agents:
        raise NotAllowed(
            f"key {caller.key_id} is limited to {', '.join(sorted(caller.agents))}; use a key for all agents",
            code="model_not_allowed",
        )
