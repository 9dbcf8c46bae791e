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
from burnish.server.gateway.metrics.counts import Counts, Sample
from burnish.server.gateway.metrics.from_gateways import RECORDS
from burnish.server.gateway.metrics.published import IN_FLIGHT, Published
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
    counts: Counts
    published: Published
    reporter: "asyncio.Task[None]"
    publisher: "asyncio.Task[None]"

    @classmethod
    def open(cls, settings: Settings) -> "State":
        routes = table.watch(settings.run_dir / "routes.json", TABLE_AGE)
        heartbeat = Heartbeat(settings.run_dir, routes)
        keyring = Keyring(settings, routes)
        recorder, counts, limits = Recorder(settings), Counts(), Limits(settings.run_dir)

        def samples() -> list[Sample]:
            records: list[Sample] = [
                (RECORDS, ("written",), [recorder.n_recorded]),
                (RECORDS, ("lost",), [recorder.n_lost]),
            ]
            return [*counts.samples(), *records, (IN_FLIGHT, (), [limits.n_in_flight])]

        published = Published(settings.run_dir, samples)
        return cls(
            settings=settings,
            routes=routes,
            keyring=keyring,
            tokens=Tokens(ensure_secret(settings.state_dir / "feedback.key"), keyring),
            limits=limits,
            engines=Engines(),
            recorder=recorder,
            heartbeat=heartbeat,
            disconnects=DisconnectWatcher(),
            counts=counts,
            published=published,
            reporter=asyncio.create_task(heartbeat.publish_forever(recorder.renew)),
            publisher=asyncio.create_task(published.publish_forever()),
        )

    async def close(self) -> None:
        """Let cancelled requests record their partial turns, then close everything."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.heartbeat.wait_idle(), LAST_RECORDS)
        for task in (self.reporter, self.publisher):
            task.cancel()
        await asyncio.gather(self.reporter, self.publisher, return_exceptions=True)
        self.heartbeat.remove()
        self.published.close()
        self.engines.close()
        self.limits.close()
        self.recorder.close()
