"""Field types that the admin routes share. They accept only values that a database can hold."""

from typing import Annotated

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from burnish.errors import RequestError
from burnish.journal.listing import Place

AgentPath = Annotated[str, Path(max_length=256, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.~-]*$", description="Agent name.")]
Number = Annotated[int, Field(ge=0, le=2**31 - 1)]  # the largest number that both databases hold
Text = Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$")]  # PostgreSQL stores no NUL
Since = Annotated[float | None, Query(ge=0, le=1e11, description="Only from this time on, in seconds since the epoch.")]

Before = Annotated[
    str | None,
    Query(max_length=600, pattern=r"^[^\x00]+$", description="Go on where a page ended: its `next`."),
]


def place(before: str | None) -> Place | None:
    """Where a list goes on. Raises RequestError for what no answer has named."""
    try:
        return Place.read(before)
    except ValueError as error:
        raise RequestError(f"before: {error}", param="before", code="invalid_value") from error


class Body(BaseModel):
    """A request body. Unknown fields are an error."""

    model_config = ConfigDict(extra="forbid")


class Reasoned(Body):
    """A body that holds only a reason."""

    reason: Text | None = Field(None, description="Kept in the audit log.")
