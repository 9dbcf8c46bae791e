"""Import of an adapter as a tar archive: unpacked aside, checked, and adopted by the learner's code.

Archives are received from few tenants at a time, one from each, and then adopted one by one. The gateway parses nothing
of them and loads no torch: child processes do, within limits. At most an adapter's two files and its manifest are
unpacked, under fixed names. Nothing in the archive is executed, and no path in it is followed.
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
"""For the whole body."""
CHECK_SECONDS = 60.0
ADOPT_SECONDS = 1800.0
MAX_RECEIVED = 4
"""Archives that are received at a time. Each takes gigabytes of disk."""
_TOO_MUCH = "the adapter takes too much memory or time to check"
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
    senders: set[str] = set()

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
        if caller.tenant in senders or len(senders) >= MAX_RECEIVED:
            raise Conflict("another import is running here; try again when it has ended", code="import_running")
        senders.add(caller.tenant)
        folder = Path(tempfile.mkdtemp(prefix="import-", dir=settings.state_dir))
        try:
            await _receive(request, folder / "archive.tar")
            async with running:  # a process that loads torch
                await run_in_threadpool(unpack, folder / "archive.tar", folder / "adapter")
                await run_in_threadpool(_check, settings, folder / "adapter", any_base)
                result = await run_in_threadpool(_adopt, settings, agent, folder / "adapter", caller.key_id, any_base)
        finally:
            senders.discard(caller.tenant)
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
        raise RequestError(f"the archive took more than {RECEIVE_SECONDS:.0f} seconds") from error


def _check(settings: Settings, folder: Path, any_base: bool) -> None:
    """Check everything that can be checked without torch. Raises AdapterError without this server's paths."""
    engine = settings.engine
    asked = {"directory": str(folder), "model": engine.model, "max_rank": engine.max_lora_rank, "any_base": any_base}
    done = _child("burnish.adapters.files.foreign", asked, CHECK_SECONDS)
    answer = json.loads(done.stdout) if done is not None and not done.returncode else {"error": _TOO_MUCH}
    if "error" in answer:
        raise AdapterError(answer["error"].replace(f"{folder}/", ""))


def _adopt(settings: Settings, agent: str, folder: Path, actor: str, any_base: bool) -> dict[str, Any]:
    asked = {
        "settings": settings.model_dump(mode="json"),
        "agent": agent,
        "directory": str(folder),
        "actor": actor,
        "any_base": any_base,
    }
    done = _child("burnish.learner.run.adopt", asked, ADOPT_SECONDS)
    if done is None:
        raise JournalError(f"the import took more than {ADOPT_SECONDS:.0f} seconds and was ended")
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise JournalError(f"cannot import here ({last}); run `burnish versions import` where the learner is installed")
    answer: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    if "error" in answer:
        kind = getattr(errors, answer["kind"], BurnishError)
        raise kind(answer["error"].replace(f"{folder}/", ""))
    return answer


def _child(module: str, asked: dict[str, Any], seconds: float) -> "subprocess.CompletedProcess[str] | None":
    """What a process that runs `module` answers. None if it took too long."""
    command = [sys.executable, "-P", "-m", module]
    try:
        return subprocess.run(
            command, input=json.dumps(asked), capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return None
