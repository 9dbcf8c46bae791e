"""Who is served, and who may ask: agents and keys."""

from sqlalchemy import JSON, Column
from sqlmodel import Field, SQLModel


class AgentRow(SQLModel, table=True):
    """A named policy line, owned by a tenant. `settings` lays dotted keys over the configuration, for this agent alone.

    A personal agent has the agent it branches from as its `parent` and an end user of that one as its `user`. State:
    `settings`, `is_paused` (the learner takes no new step), `held` (why nothing is promoted without an operator until
    it is released, None where it is not held), `last_used_at` (when a personal agent was last asked for).
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
    """An API key, hashed. Limits of 0 mean none. `revoked_at` (state)."""

    __tablename__ = "key"
    key_id: str = Field(primary_key=True)
    digest: str = Field(unique=True)
    tenant: str
    scopes: list[str] = Field(sa_column=Column(JSON, nullable=False))
    agents: list[str] = Field(sa_column=Column(JSON, nullable=False))
    name: str = ""
    requests_per_minute: int = 0
    max_concurrent: int = 0
    created_at: float
    revoked_at: float | None = None
