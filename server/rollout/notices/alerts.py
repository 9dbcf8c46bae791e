"""Alerts: a log line, and a notice to the webhook if one is set. Nothing waits for them.

Notices are kept in a file until they are delivered, and go out in order. A failed one is tried again with growing
pauses until it is a day old, also after a restart. So a receiver gets each notice at least once; the header
`webhook-id` tells a repeated one.
"""

import asyncio
import json
import secrets
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from burnish.files import UNREADABLE, read_json, replace_text
from burnish.server.rollout.notices.webhook import Outcome, Webhook

log = structlog.get_logger(__name__)
MOST = 1000
"""Notices that wait at a time. Beyond that the oldest goes."""
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 600.0
OLDEST = 86_400.0
"""Age in seconds at which a notice is given up."""


class Alerts:
    """One per process. `webhook` is None if there is none. `file` keeps what waits, None for memory alone.

    `send` returns at once. A webhook that does not answer costs log lines.
    """

    def __init__(self, webhook: Webhook | None, file: Path | None = None, *, first_pause: float = FIRST_PAUSE) -> None:
        self._webhook = webhook
        self._file = file
        self._first_pause = first_pause
        self._waiting: deque[dict[str, Any]] = deque(_stored(file) if webhook is not None else (), MOST)
        self._sender: asyncio.Task[None] | None = None
        self._is_closing = asyncio.Event()

    def send(self, event: str, *, notice_id: str | None = None, **facts: Any) -> None:
        """Report that `event` happened. Outside an event loop it is only logged."""
        log.error(event, **facts)
        if self._webhook is None:
            return
        named = notice_id or f"notice-{secrets.token_hex(12)}"
        self._waiting.append({"id": named, "event": event, "at": time.time(), **facts})
        self._keep()
        self.resume()

    def resume(self) -> None:
        """Begin to deliver what waits, unless that is being done."""
        if not self._waiting or (self._sender is not None and not self._sender.done()):
            return
        with suppress(RuntimeError):
            self._sender = asyncio.get_running_loop().create_task(self._deliver())

    async def close(self) -> None:
        """Let a running try end, within its time-out. What is left waits in the file for the next start."""
        self._is_closing.set()
        if self._sender is not None:
            await asyncio.gather(self._sender, return_exceptions=True)

    async def _deliver(self) -> None:
        assert self._webhook is not None, "there is a webhook"
        pause = self._first_pause
        while self._waiting:
            notice = self._waiting[0]
            outcome = await self._webhook.post(notice)
            if outcome is Outcome.FAILED and time.time() - float(notice["at"]) < OLDEST:
                if await self._is_told_to_end(pause):
                    return
                pause = min(LONGEST_PAUSE, 2 * pause)
                continue
            if outcome is not Outcome.DELIVERED:
                log.error("a notice is given up", notice=notice["id"], alert=notice["event"])
            pause = self._first_pause
            if self._waiting and self._waiting[0] is notice:  # a full queue may have dropped it meanwhile
                self._waiting.popleft()
            self._keep()
            if self._is_closing.is_set():
                return

    async def _is_told_to_end(self, seconds: float) -> bool:
        """Wait. True at once if this process ends."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_closing.wait(), seconds)
        return self._is_closing.is_set()

    def _keep(self) -> None:
        if self._file is None:
            return
        try:
            replace_text(self._file, json.dumps(list(self._waiting), default=str), mode=0o600, is_durable=False)
        except OSError as error:
            log.warning("notices that wait cannot be kept", path=str(self._file), error=str(error))


def _stored(file: Path | None) -> list[dict[str, Any]]:
    """What waited when the last process ended."""
    if file is None:
        return []
    try:
        return [dict(notice) for notice in read_json(file) or [] if {"id", "event", "at"} <= set(notice)]
    except UNREADABLE as error:
        log.warning("notices that waited cannot be read", path=str(file), error=repr(error))
        return []
