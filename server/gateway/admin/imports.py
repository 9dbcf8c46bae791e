"""Import of an adapter as a tar archive: unpacked aside, checked, and adopted by the learner's code.

One at a time in each gateway process. That process loads no torch: `python -m burnish.learner.run.adopt` does the work
in a child process. At most an adapter's two files and its manifest are unpacked, under fixed names. Nothing in the
archive is executed, and no path in it is followed.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool

from burnish import errors
from burnish.adapters.files import foreign
from burnish.adapters.verbs.answers import imported
from burnish.config import Settings
from burnish.errors import AdapterError, BurnishError, Conflict, JournalError, RequestError
from burnish.journal import Journal
from burnish.keys import Scope
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.admin.archive import MAX_BYTES, unpack
from burnish.server.gateway.admin.caller import Access
from burnish.server.gateway.admin.field_types import AgentPath

RECEIVE_SECONDS = 1800.0
"""For the whole body. Nobody else can import meanwhile."""
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}},
    }
}


def router(settings: Settings, journal: Journal, access: Access) -> APIRouter:
    """`POST /agents/{agent}/versions/import`."""
    made = APIRouter()
    running = asyncio.Lock()

    @made.post("/agents/{agent}/versions/import", openapi_extra=_BODY)
    async def import_version(
        agent: AgentPath,
        request: Request,
        any_base: Annotated[
            bool, Query(description="Take your word that the adapter belongs to the base that is served.")
        ] = False,
        caller: Caller = Depends(access.on_agent(Scope.OPERATOR)),  # noqa: B008
    ) -> dict[str, Any]:
        """Import a PEFT adapter from a tar archive of its directory. The gate tries it like any other version."""
        if running.locked():  # each takes gigabytes of disk, and a process that loads torch
            raise Conflict("another import is running here; try again when it has ended", code="import_running")
        async with running:
            folder = Path(tempfile.mkdtemp(prefix="import-", dir=settings.state_dir))
            try:
                await _receive(request, folder / "archive.tar")
                await run_in_threadpool(unpack, folder / "archive.tar", folder / "adapter")
                await run_in_threadpool(_check, settings, folder / "adapter", any_base)
                result = await run_in_threadpool(_adopt, settings, agent, folder / "adapter", caller.key_id, any_base)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        return {**result, "status": imported(agent, result["version"])}

    return made


async def _receive(request: Request, file: Path) -> None:
    n_bytes = 0
    try:
        async with asyncio.timeout(RECEIVE_SECONDS):
            with file.open("wb") as out:
                async for chunk in request.stream():
                    n_bytes += len(chunk)
                    if n_bytes > MAX_BYTES:
                        raise RequestError(f"the archive has more than {MAX_BYTES} bytes", code="request_too_large")
                    out.write(chunk)
    except TimeoutError as error:
        raise RequestError(f"the archive took more than {RECEIVE_SECONDS:.0f} seconds; others wait") from error


def _check(settings: Settings, folder: Path, any_base: bool) -> None:
    """Check everything that can be checked without torch. Raises AdapterError without this server's paths."""
    try:
        foreign.read(folder, model=settings.engine.model, max_rank=settings.engine.max_lora_rank, any_base=any_base)
    except AdapterError as error:
        raise AdapterError(str(error).replace(f"{folder}/", "")) from error


def _adopt(settings: Settings, agent: str, folder: Path, actor: str, any_base: bool) -> dict[str, Any]:
    asked = {
        "settings": settings.model_dump(mode="json"),
        "agent": agent,
        "directory": str(folder),
        "actor": actor,
        "any_base": any_base,
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", "burnish.learner.run.adopt"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise JournalError(f"cannot import here ({last}); run `burnish versions import` where the learner is installed")
    answer: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    if "error" in answer:
        kind = getattr(errors, answer["kind"], BurnishError)
        raise kind(answer["error"].replace(f"{folder}/", ""))
    return answer
