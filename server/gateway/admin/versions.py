"""Versions over HTTP: list, show, lineage, pin, export, and removal of old files."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field

from burnish.adapters.files.export import as_tar
from burnish.adapters.files.retention import FileRetention
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import lifecycle, versions
from burnish.adapters.registry.lineage import aliases_of, lineage
from burnish.adapters.verbs.answers import pinned
from burnish.config import Settings
from burnish.errors import AdapterError
from burnish.journal import Journal
from burnish.journal.listing import pairs
from burnish.keys import Scope
from burnish.records import VersionName
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.admin.caller import Access
from burnish.server.gateway.admin.field_types import AgentPath, Body, Number, Reasoned

Known = Annotated[int, Field(ge=1, le=2**31 - 1)]
TAR = "application/x-tar"


class Removing(Body):
    """`dry_run` lists what would be removed and removes nothing."""

    dry_run: bool = Field(False, description="Only say what would be removed.")


def router(settings: Settings, journal: Journal, access: Access) -> APIRouter:
    """Everything below /agents/{agent}/versions except imports."""
    may_see = Depends(access.on_agent(Scope.VIEWER))
    may_change = Depends(access.on_agent(Scope.OPERATOR))
    store = AdapterStore.of(settings)
    made = APIRouter()

    @made.get("/agents/{agent}/versions", dependencies=[may_see])
    def list_versions(agent: AgentPath) -> dict[str, Any]:
        """An agent's versions, oldest first, and its aliases."""
        with journal.read() as session:
            live = lifecycle.alias(session, agent)
            previous = lifecycle.alias(session, agent, lifecycle.PREVIOUS)
            pointed = aliases_of(session, agent)
            rows = [
                {**row.model_dump(), "aliases": pointed.get(row.version, [])}
                for row in lifecycle.versions(session, agent)
            ]
        return {"agent": agent, "live": live, "previous": previous, "versions": rows}

    @made.get("/agents/{agent}/versions/{version}", dependencies=[may_see])
    def show_version(agent: AgentPath, version: Number) -> dict[str, Any]:
        """One version: state, evidence and manifest. If its files are gone, the manifest is null and a message says
        why.
        """
        with journal.read() as session:
            row = lifecycle.version(session, agent, version).model_dump()
        try:
            return {**row, "manifest": store.manifest(agent, version), "fault": None}
        except AdapterError as error:
            return {**row, "manifest": None, "fault": str(error)}

    @made.get("/agents/{agent}/versions/{version}/lineage", dependencies=[may_see])
    def show_lineage(agent: AgentPath, version: Number) -> dict[str, Any]:
        """One version's lineage: rows, step, ancestors, trials, and when it was live."""
        with journal.read() as session:
            return lineage(session, agent, version)

    @made.get("/agents/{agent}/versions/{version}/pairs")
    def list_pairs(
        agent: AgentPath,
        version: Number,
        outcome: Annotated[Literal["won", "lost", "tied", "undecided"] | None, Query(description="Only these.")] = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 20,
        caller: Caller = may_see,
    ) -> dict[str, Any]:
        """Prompts that the version answered otherwise than the version it was compared with, on held-out turns or in a
        shadow canary: both replies, and which the judge preferred. Lost ones come first.

        `votes` say how people voted between the version and others (a correction of one reply by the text of another
        one to the same request): `n` votes and the share that the version won, with its 95 % bounds.
        """
        with journal.read() as session:
            lifecycle.version(session, agent, version)
            found = pairs.pairs(session, agent, version, outcome=outcome, limit=limit)
            votes = pairs.votes(session, agent, caller.tenant, version)
        return {"agent": agent, "version": version, "pairs": found, "votes": votes}

    @made.post("/agents/{agent}/versions/{version}/pin")
    def pin(agent: AgentPath, version: Known, body: Reasoned, caller: Caller = may_change) -> dict[str, Any]:
        """Keep a version's files, whatever the retention settings say."""
        return _pin(agent, version, True, body, caller)

    @made.post("/agents/{agent}/versions/{version}/unpin")
    def unpin(agent: AgentPath, version: Known, body: Reasoned, caller: Caller = may_change) -> dict[str, Any]:
        """Let the retention settings decide about a version's files again."""
        return _pin(agent, version, False, body, caller)

    def _pin(agent: str, version: int, is_pinned: bool, body: Reasoned, caller: Caller) -> dict[str, Any]:
        with journal.write() as session:
            options: dict[str, Any] = {"actor": caller.key_id, "reason": body.reason}
            is_new = versions.set_pinned(session, agent, version, is_pinned, **options)
        return {"status": pinned(agent, version, is_pinned, is_new), "is_pinned": is_pinned}

    @made.get(
        "/agents/{agent}/versions/{version}/export",
        dependencies=[may_change],  # weights can repeat what they were trained on
        response_class=Response,
        responses={
            200: {"content": {TAR: {"schema": {"type": "string", "format": "binary"}}}, "description": "A tar archive."}
        },
    )
    def export_version(agent: AgentPath, version: Known) -> Response:
        """The version as a directory that PEFT loads, in a tar archive."""
        with journal.read() as session:
            versions.version(session, agent, version)
        name = VersionName(agent, version)
        headers = {"content-disposition": f'attachment; filename="{name}.tar"'}
        return Response(as_tar(store, agent, version), media_type=TAR, headers=headers)

    @made.post("/agents/{agent}/versions/gc")
    def remove_versions(agent: AgentPath, body: Removing, caller: Caller = may_change) -> dict[str, Any]:
        """Remove the files of versions that nobody needs, and what is in quarantine. Records stay."""
        return FileRetention(settings, journal).remove(agent, actor=caller.key_id, is_dry=body.dry_run).as_dict()

    return made
