"""The mirror of a shadow canary: the version answers live turns again, unseen, and the judge compares the replies.

Nobody waits for it. It asks at low priority, for turns that have ended. If more turns end than it can answer, it takes
the latest. The journal holds its replies as pairs, each with a job for the judge (judges/comparison/comparer.py). A
restart asks nothing twice.
"""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import structlog
from sqlalchemy import select
from sqlmodel import Session, col

from burnish.adapters.evidence.heldout_replay import Rules
from burnish.adapters.registry import canaries
from burnish.adapters.registry.personal import is_listed
from burnish.errors import EngineError, EngineUnavailable
from burnish.hashing import place
from burnish.journal import Journal
from burnish.journal.outage import repeat
from burnish.journal.tables import CanaryRow, ComparisonRow, InteractionRow
from burnish.journal.turns import messages_of
from burnish.logs import told
from burnish.records import Observation, Sampling, VersionName
from burnish.server.rollout import reply_pairs
from burnish.server.rollout.engine.engine import Engine, Reply
from burnish.server.rollout.engine.vllm import LOW_PRIORITY

AT_ONCE = 4
MOST = 32
"""Turns answered in one round."""
LOOK_BACK = 60.0
"""Seconds by which a turn's record may arrive after a later turn's."""
log = structlog.get_logger(__name__)


class Mirror:
    """One per serving host. The first engine answers, with at most `max_tokens`. Replies of the agents in `redact` are
    kept without findings.
    """

    def __init__(
        self, journal: Journal, engine: Engine, *, max_tokens: int = Rules.max_tokens, redact: Collection[str] = ()
    ) -> None:
        self._journal = journal
        self._engine = engine
        self._max_tokens = max_tokens
        self._redact = redact
        self._refused: set[str] = set()  # turns that the engine refused
        self._is_observing = True

    async def run_forever(self, is_stopping: Callable[[], bool], interval: float = 1.0) -> None:
        """Answer turns that have ended, until `is_stopping()`. An absent journal or engine is waited for."""

        async def look() -> None:
            try:
                await self.run_once()
            except EngineUnavailable as error:
                log.warning("the shadow waits", error=told(error))

        await repeat(look, is_stopping, interval, changes=self._journal.changes, due=self._due)

    def _due(self) -> float:
        """During an observation turns may wait for the engine."""
        return 0.0 if self._is_observing else math.inf

    async def run_once(self) -> int:
        """One round. Returns how many pairs were made."""
        with self._journal.read() as session:
            shadows = [row for row in canaries.running(session) if row.kind == Observation.SHADOW]
        self._is_observing = bool(shadows)
        if not shadows:
            self._refused.clear()
        return sum([await self._answer(row) for row in shadows])

    async def _answer(self, row: CanaryRow) -> int:
        name = VersionName(row.agent, row.version)
        with self._journal.read() as session:
            turns = [turn for turn in _turns(session, row) if turn.interaction_id not in self._refused]
            asked = [
                (turn, messages_of(session, turn.message_digests), reply_pairs.tools_of(session, turn))
                for turn in turns
            ]
        slots = asyncio.Semaphore(AT_ONCE)

        async def ask(
            turn: InteractionRow, said: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
        ) -> Reply | None:
            async with slots:
                try:
                    return await self._engine.chat(
                        str(name),
                        said,
                        tools=tools,
                        temperature=Sampling(**turn.sampling).temperature,  # type: ignore[arg-type]
                        max_tokens=self._max_tokens,
                        priority=LOW_PRIORITY,
                    )
                except EngineUnavailable:
                    raise
                except EngineError as error:  # for example a context that is too long: the turn makes no pair
                    log.info("a turn cannot be mirrored", turn=turn.interaction_id, error=told(error))
                    self._refused.add(turn.interaction_id)
                    return None

        replies = await asyncio.gather(*(ask(*each) for each in asked))
        n_made = 0
        with self._journal.write() as session:
            for turn, reply in zip(turns, replies, strict=True):
                if reply is not None:
                    (live,) = messages_of(session, [turn.reply_digest])
                    shown = Reply(live, turn.finish_reason, len(turn.token_ids) // 4)
                    pair = (name, row.baseline, turn.interaction_id, reply, shown)
                    reply_pairs.put(session, *pair, redacts=is_listed(row.agent, self._redact))
                    n_made += 1
        return n_made


def is_mirrored(interaction_id: str, share: float) -> bool:
    """True for about `share` of all turns, always the same ones."""
    return place(f"mirrored|{interaction_id}") < share


def _turns(session: Session, row: CanaryRow) -> list[InteractionRow]:
    """The baseline's latest turns since the observation began that may be answered again and have not been.

    Only turns of clients that allow training, and only whole replies with plain sampling by temperature, because the
    version is given only that.
    """
    since = max(row.started_at, time.time() - LOOK_BACK)
    known = select(col(ComparisonRow.interaction_id)).where(
        col(ComparisonRow.agent) == row.agent, col(ComparisonRow.version) == row.version
    )
    wanted = select(InteractionRow).where(
        col(InteractionRow.agent) == row.agent,
        col(InteractionRow.version) == row.baseline,
        col(InteractionRow.started_at) > row.started_at,
        col(InteractionRow.ended_at) > since,
        col(InteractionRow.kind) == "main",
        col(InteractionRow.choice) == 0,
        col(InteractionRow.is_aborted).is_(False),
        col(InteractionRow.may_train).is_(True),
        col(InteractionRow.quarantine).is_(None),
        col(InteractionRow.upstream).is_(None),
        col(InteractionRow.finish_reason).in_(("stop", "tool_calls")),
        col(InteractionRow.interaction_id).not_in(known),
    )
    latest = session.scalars(wanted.order_by(col(InteractionRow.ended_at).desc()).limit(MOST)).all()
    return [found for found in latest if is_mirrored(found.interaction_id, row.share) and _is_plain(found)]


def _is_plain(turn: InteractionRow) -> bool:
    sampling = Sampling(**turn.sampling)  # type: ignore[arg-type]
    return sampling.is_plain or sampling == Sampling(temperature=0.0)
