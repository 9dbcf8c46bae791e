"""The mirror: a version in the shadow answers the live version's turns once more, unseen, and the judge says whose
reply is better.

Nobody waits for it: it asks behind live traffic, of turns that have ended, and where more of them end than it can
answer it takes the latest. What it made is in the journal as pairs with a job each for the judge
(judges/comparison/comparer.py); a restart asks nothing twice.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, col

from burnish.adapters.evidence.heldout_replay import Rules
from burnish.adapters.registry import canaries
from burnish.errors import EngineError, EngineUnavailable
from burnish.hashing import place
from burnish.journal import Journal
from burnish.journal.tables import CanaryRow, ComparisonRow, InteractionRow
from burnish.journal.turns import messages_of
from burnish.records import Observation, Sampling, VersionName
from burnish.server.rollout import reply_pairs
from burnish.server.rollout.engine.engine import Engine, Reply
from burnish.server.rollout.engine.vllm import LOW_PRIORITY

AT_ONCE = 4
MOST = 32
"""Turns taken up in one round."""
LOOK_BACK = 60.0
"""Seconds by which the record of a turn may come behind that of a later one."""
log = structlog.get_logger(__name__)


class Mirror:
    """One per serving host; the first engine answers, `max_tokens` at most."""

    def __init__(self, journal: Journal, engine: Engine, *, max_tokens: int = Rules.max_tokens) -> None:
        self._journal = journal
        self._engine = engine
        self._max_tokens = max_tokens
        self._refused: set[str] = set()  # turns that the engine would not take once more

    async def run_forever(self, is_stopping: Callable[[], bool], interval: float = 1.0) -> None:
        """Answer whatever has ended, until `is_stopping()`; a journal or an engine that is away is waited for."""
        while not is_stopping():
            try:
                await self.run_once()
            except (SQLAlchemyError, EngineUnavailable) as error:
                log.warning("the shadow waits", error=str(error))
            await asyncio.sleep(interval)

    async def run_once(self) -> int:
        """One round; returns how many pairs were made."""
        with self._journal.read() as session:
            shadows = [row for row in canaries.running(session) if row.kind == Observation.SHADOW]
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
                except EngineError as error:  # a context too long, say: the turn makes no pair
                    log.info("a turn cannot be mirrored", turn=turn.interaction_id, error=str(error))
                    self._refused.add(turn.interaction_id)
                    return None

        replies = await asyncio.gather(*(ask(*each) for each in asked))
        n_made = 0
        with self._journal.write() as session:
            for turn, reply in zip(turns, replies, strict=True):
                if reply is not None:
                    (live,) = messages_of(session, [turn.reply_digest])
                    n_live = len(turn.token_ids) // 4
                    reply_pairs.put(
                        session, name, row.baseline, turn.interaction_id, reply, Reply(live, turn.finish_reason, n_live)
                    )
                    n_made += 1
        return n_made


def is_mirrored(interaction_id: str, share: float) -> bool:
    """True for about `share` of all turns: the same ones at every look."""
    return place(f"mirrored|{interaction_id}") < share


def _turns(session: Session, row: CanaryRow) -> list[InteractionRow]:
    """The baseline's latest turns since the shadow began that may be answered once more and have not been.

    Only of clients who let us train, only whole replies to somebody; and only those sampled at a plain temperature, the
    one thing that the version is told about sampling.
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
