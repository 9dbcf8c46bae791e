"""Agents, the keys with which clients ask for them, and users who have opted out."""

import time

from sqlalchemy import JSON, Column
from sqlmodel import Field, SQLModel

from burnish.keys import Key


class AgentRow(SQLModel, table=True):
    """A named policy line of a tenant. `settings` are dotted keys over the configuration, for this agent only.

    A personal agent has its parent agent as `parent` and that agent's end user as `user`. State: `settings`,
    `is_paused` (the learner takes no new step), `held` (why nothing is promoted automatically until an operator ends
    the hold, None without a hold), `last_used_at` (the last use of a personal agent).
    """

    __tablename__ = "agent"
    name: str = Field(primary_key=True)
    tenant: str
    created_at: float
    is_paused: bool = False
    parent: str | None = Field(default=None, index=True)
    user: str | None = None
    settings: dict[str, object] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False, default=dict))
    held: str | None = None
    last_used_at: float | None = None


class KeyRow(SQLModel, table=True):
    """An API key, hashed. Limits of 0 mean none. `user` is the user that it was made for. Without `may_train` its turns
    train nothing, without `may_record` they are not recorded. State: `revoked_at`.
    """

    __tablename__ = "key"
    key_id: str = Field(primary_key=True)
    digest: str = Field(unique=True)
    tenant: str
    scopes: list[str] = Field(sa_column=Column(JSON, nullable=False))
    agents: list[str] = Field(sa_column=Column(JSON, nullable=False))
    name: str = ""
    requests_per_minute: int = 0
    max_concurrent: int = 0
    user: str | None = None
    may_train: bool = True
    may_record: bool = True
    created_at: float
    revoked_at: float | None = None

    @classmethod
    def of(cls, key: Key) -> "KeyRow":
        """The row of a key that is new now."""
        return cls(
            key_id=key.key_id,
            digest=key.digest,
            tenant=key.tenant,
            scopes=sorted(key.scopes),
            agents=sorted(key.agents),
            name=key.name,
            requests_per_minute=key.requests_per_minute,
            max_concurrent=key.max_concurrent,
            user=key.user,
            may_train=key.may_train,
            may_record=key.may_record,
            created_at=time.time(),
        )


class OptOutRow(SQLModel, table=True):
    """A user whose turns train nothing and, without `may_record`, are not recorded (state: `may_record`, `at`).

    `voice` is a digest, because an opt-out outlives the erasure of its user.
    """

    __tablename__ = "opt_out"
    voice: str = Field(primary_key=True)
    may_record: bool
    at: float
