"""Training rows over HTTP, streamed as JSONL."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import StreamingResponse

from burnish.config import Settings
from burnish.journal import Journal, training_rows
from burnish.journal.training_rows import MIN_REWARD, Format
from burnish.keys import Scope
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.admin.caller import Access
from burnish.server.gateway.admin.field_types import AgentPath, Since

JSONL = "application/jsonl"


def router(settings: Settings, journal: Journal, access: Access) -> APIRouter:
    """`GET /agents/{agent}/export`."""
    made = APIRouter()

    @made.get(
        "/agents/{agent}/export",
        response_class=StreamingResponse,
        responses={200: {"content": {JSONL: {"schema": {"type": "string"}}}, "description": "One JSON object a line."}},
    )
    def export_rows(
        agent: AgentPath,
        form: Annotated[Format, Query(alias="format", description="For which trainer of TRL.")] = Format.SFT,
        since: Since = None,
        until: Since = None,
        min_reward: Annotated[
            float, Query(gt=0, le=2, description="From which reward on a reply is an example.")
        ] = MIN_REWARD,
        caller: Caller = Depends(access.on_agent(Scope.OPERATOR)),  # noqa: B008
    ) -> StreamingResponse:
        """Turns as JSONL rows for other trainers; turns that are kept out of training are left out."""
        found = training_rows.rows(
            journal, form, agent=agent, tenant=caller.tenant, since=since, until=until, min_reward=min_reward
        )
        return StreamingResponse(training_rows.lines(found), media_type=JSONL)

    return made
