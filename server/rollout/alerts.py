"""Alerts: a log line, and a POST if a webhook is set. Nothing waits for them."""

import asyncio
from typing import Any

import aiohttp
import structlog

log = structlog.get_logger(__name__)
POST_SECONDS = 5.0
"""Seconds for one POST. A failed one is logged and forgotten."""


class Alerts:
    """One per process. `webhook` is a URL, empty for none. `timeout` is the time for one POST in seconds.

    `send` returns at once. A webhook that does not answer costs a log line.
    """

    def __init__(self, webhook: str, *, timeout: float = POST_SECONDS) -> None:
        self._webhook = webhook
        self._timeout = timeout
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, event: str, **facts: Any) -> None:
        """Report that `event` happened. Outside an event loop it is only logged."""
        log.error(event, **facts)
        if not self._webhook:
            return
        try:
            task = asyncio.get_running_loop().create_task(self._post({"event": event, **facts}))
        except RuntimeError:
            return
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Let running POSTs end, each within its time-out."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _post(self, body: dict[str, Any]) -> None:
        timeout = aiohttp.ClientTimeout(total=self._timeout)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as http,
                http.post(self._webhook, json=body) as answer,
            ):
                if answer.status >= 400:
                    log.warning("the alert webhook refused an alert", status=answer.status, alert=body["event"])
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            log.warning("the alert webhook cannot be reached", error=repr(error), alert=body["event"])
