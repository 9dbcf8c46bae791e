"""A whole Burnish for the length of a demo: supervised parts, their output in a file, a clean end."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from burnish import keys
from burnish.config import Settings
from burnish.errors import BurnishError
from burnish.files import replace_text
from burnish.processes.parts import parts_of
from burnish.processes.supervisor import LocalLauncher, Supervisor

MARKER = "made-by-demo"


@asynccontextmanager
async def running(settings: Settings, log_file: Path) -> AsyncIterator[Supervisor]:
    """All parts, ready to serve. They end with the block. Their output goes to `log_file`."""
    with log_file.open("a", encoding="utf-8") as log:

        def emit(part: str, line: str) -> None:
            log.write(f"{part:>8} | {line}\n")
            log.flush()

        supervisor = Supervisor(parts_of(settings, os.environ), LocalLauncher(emit))
        task = asyncio.create_task(supervisor.run())
        try:
            ready = asyncio.create_task(
                supervisor.wait_ready(["gateway", *([] if settings.engine.urls else ["engine"])])
            )
            await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                raise BurnishError(f"the parts did not start; see the reason in {log_file}")
            yield supervisor
        finally:
            supervisor.stop()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def clear_state(folder: Path) -> Path | None:
    """Move an existing state directory aside (never delete it) for a fresh one. Returns its new place."""
    if not folder.exists() or not any(folder.iterdir()):
        return None
    aside = folder.with_name(f"{folder.name}.{time.strftime('%Y%m%d-%H%M%S')}")
    folder.rename(aside)
    return aside


def mark(folder: Path) -> None:
    replace_text(folder / MARKER, "This state directory was made by `burnish demo`.\n")


def make_user_key(settings: Settings) -> str:
    """A key of a back end, with which all simulated users talk and vote: it may name them."""
    from burnish.adapters.registry.revocations import add_key
    from burnish.adapters.serving.prepare import prepare, refresh

    journal = prepare(settings)
    scopes = {keys.Scope.INFERENCE, keys.Scope.FEEDBACK, keys.Scope.USERS}
    secret, key = keys.mint(scopes, name="simulated users")
    with journal.write() as session:
        add_key(session, key, actor="demo")
    refresh(settings, journal)
    journal.close()
    return secret
