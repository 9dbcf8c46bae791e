"""The state of one gateway process, opened at start-up and closed in order at the end."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from burnish import serving_table as table
from burnish.config import Settings
from burnish.files import Watched
from burnish.keys import ensure_secret
from burnish.server.gateway.access.keyring import Keyring
from burnish.server.gateway.access.limits import Limits
from burnish.server.gateway.engines.engines import Engines
from burnish.server.gateway.feedback.vote_tokens import Tokens
from burnish.server.gateway.heartbeat import Heartbeat
from burnish.server.gateway.http.disconnects import DisconnectWatcher
from burnish.server.gateway.recorder import Recorder
from burnish.serving_table import Routes

LAST_RECORDS = 2.0
TABLE_AGE = 0.002
"""Seconds for which a gateway trusts its view of the serving table."""


@dataclass(frozen=True)
class State:
    """Settings, serving table, keys, vote tokens, limits, engines, segments and counts. Create it inside the event
    loop.
    """

    settings: Settings
    routes: Watched[Routes]
    keyring: Keyring
    tokens: Tokens
    limits: Limits
    engines: Engines
    recorder: Recorder
    heartbeat: Heartbeat
    disconnects: DisconnectWatcher
    reporter: "asyncio.Task[None]"

    @classmethod
    def open(cls, settings: Settings) -> "State":
        routes = table.watch(settings.run_dir / "routes.json", TABLE_AGE)
        heartbeat = Heartbeat(settings.run_dir, routes)
        keyring = Keyring(settings, routes)
        recorder = Recorder(settings)
        return cls(
            settings=settings,
            routes=routes,
            keyring=keyring,
            tokens=Tokens(ensure_secret(settings.state_dir / "feedback.key"), keyring),
            limits=Limits(settings.run_dir),
            engines=Engines(),
            recorder=recorder,
            heartbeat=heartbeat,
            disconnects=DisconnectWatcher(),
            reporter=asyncio.create_task(heartbeat.publish_forever(recorder.renew)),
        )

    async def close(self) -> None:
        """Let cancelled requests record their partial turns, then close everything."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.heartbeat.wait_idle(), LAST_RECORDS)
        self.reporter.cancel()
        await asyncio.gather(self.reporter, return_exceptions=True)
        self.heartbeat.remove()
        self.engines.close()
        self.limits.close()
        self.recorder.close()
