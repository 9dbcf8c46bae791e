"""The drawer: begins shadow groups for live turns and draws them while an engine is idle and the budget lasts.

It runs in the swapper's process, which knows the engines and the settings by agent and is not on the hot path. A group
is filed whole, with its rubric job, in one transaction. After a crash in the middle of a group its lease runs out, and
the group is drawn again. Failures are logged and counted. They never end the process.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from burnish import serving_table
from burnish.adapters.registry.personal import is_listed
from burnish.config import BASE_NAME, Settings
from burnish.errors import EngineError, EngineUnavailable
from burnish.journal import Journal, jobs, judge_checks, shadows
from burnish.journal.blobs import prompt_of
from burnish.journal.changes import Rest
from burnish.journal.tables import InteractionRow, ShadowGroupRow, ShadowJob
from burnish.journal.turns import from_bytes, messages_of
from burnish.logs import told
from burnish.records import GroupState
from burnish.server.rollout.shadow_groups import group
from burnish.server.rollout.shadow_groups.engine_source import Source
from burnish.server.rollout.shadow_groups.group import Interrupted, Order, Prompt, Unfit
from burnish.server.rollout.shadow_groups.picker import MAX_AGE, pick
from burnish.wire.redaction import REDACTED, redacted_message

log = structlog.get_logger(__name__)
LEASE_SECONDS = 150.0
AT_ONCE = 8
"""Groups that are drawn side by side."""
MINUTE = 60.0
PICK_SECONDS = 2.0
VARIED = 0.7
"""Temperature of replies that ratings score. At a client's own, which is often lower, all would be nearly the same. A
small model writes much nonsense at 1, and forgets more by learning from it.
"""
SPARE_TOKENS = 32
"""Replies that ratings score may be longer than the live one by this many tokens."""
MAX_TRIES = 10
"""How many times a group's drawing may be interrupted."""
RETRY_SECONDS = 0.25
"""Pause after the first interruption. It doubles with each further one."""


class _Asked(NamedTuple):
    """What a job asks for. `order` is None if nothing can answer it any more. `estimate` is in tokens."""

    order: Order | None
    estimate: int


class Drawer:
    """One per serving host. `run_once` draws the groups that wait, up to `AT_ONCE`, and returns True if there were
    any.
    """

    def __init__(
        self,
        journal: Journal,
        sources: Sequence[Source],
        routes_file: Path,
        settings: Settings,
        of: Callable[[str], Settings],
        *,
        look: float = group.LOOK,
    ) -> None:
        self._journal = journal
        self._sources = sources
        self._file = routes_file
        self._settings = settings
        self._of = of
        self._look = look
        self._is_stopping: Callable[[], bool] = lambda: False
        self._picked_at = -math.inf
        self._due_at = 0.0

    async def run_forever(self, is_stopping: Callable[[], bool], interval: float = 0.5) -> None:
        """Draw until `is_stopping()`. Errors never reach serving."""
        self._is_stopping, is_away = is_stopping, False
        rest = Rest(self._journal.changes)
        while not is_stopping():
            rest.begin()
            try:
                has_drawn = await self.run_once()
                is_away = False
            except EngineUnavailable as error:
                has_drawn = False
                if not is_away:
                    log.info("no shadows while the engine does not answer", error=told(error))
                is_away = True
            except Exception:  # the swapper runs in the same process and must not end
                log.exception("drawing shadows failed")
                has_drawn = False
            if not has_drawn:
                await asyncio.sleep(interval)
                await rest.wait_async(is_stopping, interval, lambda: self._due_at)

    async def run_once(self) -> bool:
        """Begin groups, look for an idle engine, draw the groups that have waited longest. Raises EngineUnavailable."""
        self._due_at = 0.0
        if has_picked := time.monotonic() > self._picked_at + PICK_SECONDS:
            self._picked_at = time.monotonic()
            await asyncio.to_thread(self._pick)
        if (budget := self._budget()) is None:
            self._due_at = math.inf if has_picked else time.time() + PICK_SECONDS
            return False
        if budget <= 0 or (source := await self._idle()) is None:
            return False
        leased = await asyncio.to_thread(self._lease, budget)
        if leased:
            await self._draw(leased, source)
        return bool(leased)

    def _lease(self, budget: int) -> list[tuple[jobs.Leased, _Asked | None]]:
        """Up to `AT_ONCE` jobs with what they ask for, the longest waiting first, for about `budget` tokens."""
        found: list[tuple[jobs.Leased, _Asked | None]] = []
        while len(found) < AT_ONCE and budget > 0:
            with self._journal.write() as session:
                leased = jobs.lease(session, ShadowJob, "drawer", seconds=LEASE_SECONDS)
            if not leased:
                break
            asked = self._asked(str(leased[0].payload["interaction_id"]))
            found.append((leased[0], asked))
            budget -= asked.estimate if asked is not None else 0
        return found

    def _pick(self) -> None:
        """Begin groups. The journal is written only if there is one to begin."""
        for agent in serving_table.watch(self._file).current().agents.values():
            settings = self._of(agent.name)
            if not settings.has_groups:
                continue
            with self._journal.read() as session:
                if settings.groups.grader == "rubric" and judge_checks.are_unfit(session, _judges(settings)):
                    continue
                picked = pick(session, agent, settings)
            if picked:
                with self._journal.write() as session:
                    for turn, record, wish in picked:
                        version = None if wish else agent.live
                        shadows.begin(session, turn, settings.recipe.group_size, wish, record, version=version)

    def _budget(self) -> int | None:
        """The tokens that are left in this minute. None if no group waits."""
        with self._journal.read() as session:
            counts = jobs.counts(session, ShadowJob)
            if not counts.get("queued", 0) + counts.get("leased", 0):
                return None
            return self._settings.groups.tokens_per_minute - shadows.tokens_since(session, time.time() - MINUTE)

    async def _idle(self) -> Source | None:
        for source in self._sources:
            if await source.n_requests() <= self._settings.recipe.group_max_others:
                return source
        return None

    async def _draw(self, leased: Sequence[tuple[jobs.Leased, _Asked | None]], source: Source) -> None:
        """Draw the groups of these jobs side by side."""
        wanted: list[tuple[jobs.Leased, _Asked, Order]] = []
        for job, asked in leased:
            if asked is None:  # the turn and its group were deleted, or the group has ended
                self._finish(job)
            elif asked.order is None:
                self._drop(job, "version gone: it was unloaded, or the turn became too old, before it was drawn", 0)
            else:
                wanted.append((job, asked, asked.order))
        try:
            drawn = await group.draw(source, [order for _, _, order in wanted], self._may_go_on, self._look)
        except Interrupted as error:
            for job, asked, _ in wanted:
                self._give_back(job, str(error), asked.estimate)
            return
        except EngineUnavailable as error:
            for job, _, _ in wanted:
                self._give_back(job, str(error), 0)
            raise
        for (job, asked, _), replies in zip(wanted, drawn, strict=True):
            if isinstance(replies, Unfit):
                self._drop(job, str(replies), asked.estimate)
            elif isinstance(replies, EngineError):
                self._drop(job, f"refused: {replies}", asked.estimate)
            else:
                self._store(job, replies)

    def _store(self, job: jobs.Leased, replies: Sequence[shadows.Drawn]) -> None:
        """Store the group. If its agent's turns are redacted and there is something to redact in a reply, nothing of
        the group is stored, because its tokens would spell it out.
        """
        name, agent = str(job.payload["interaction_id"]), str(job.payload["agent"])
        settings = self._of(agent)
        n_tokens = sum(len(each.token_ids) for each in replies)
        if is_listed(agent, self._settings.journal.redact) and any(
            redacted_message(each.reply) is not each.reply for each in replies
        ):
            self._drop(job, REDACTED, n_tokens)
            return
        with self._journal.write() as session:
            for_judge = settings.groups.grader == "rubric"
            if jobs.finish(session, ShadowJob, job) and shadows.file(session, name, replies, for_judge=for_judge):
                log.info("drew shadows", turn=name, n=len(replies), tokens=n_tokens)

    def _asked(self, name: str) -> _Asked | None:
        """What is to be drawn for a turn. None if the turn or its group is gone."""
        with self._journal.read() as session:
            row, turn = session.get(ShadowGroupRow, name), session.get(InteractionRow, name)
            if row is None or turn is None or row.state != GroupState.DRAWING:
                return None
            table = serving_table.watch(self._file).current()
            agent = table.agents.get(row.agent)
            n, ids = row.n_members - row.has_live, from_bytes("i", turn.token_ids)
            is_there = agent is not None and (row.version in (0, agent.live) or row.version in agent.loaded)
            is_late = time.time() > (turn.ended_at if row.has_live else row.created_at) + MAX_AGE
            if agent is None or not is_there or is_late:
                return _Asked(None, 0)
            tools = messages_of(session, [turn.tools_digest])[0] if turn.tools_digest else ()
            prompt = Prompt(
                model=agent.engine_model(row.version, table.base_name),
                messages=messages_of(session, turn.message_digests),
                tools=tuple(tools),  # type: ignore[arg-type]
                temperature=float(row.sampling["temperature"]) if row.wish else VARIED,
                prompt_ids=prompt_of(session, turn),
                last_id=ids[-1] if row.wish else None,
            )
            longest = self._of(row.agent).recipe.group_max_tokens
            if not row.wish:
                longest = min(longest, len(ids) + SPARE_TOKENS)
            return _Asked(Order(prompt, n, longest), n * len(ids))

    def _may_go_on(self, n_others: int) -> bool:
        return n_others <= self._settings.recipe.group_max_others and not self._is_stopping()

    def _finish(self, job: jobs.Leased) -> None:
        with self._journal.write() as session:
            jobs.finish(session, ShadowJob, job)

    def _drop(self, job: jobs.Leased, reason: str, n_tokens: int) -> None:
        """Drop the group. The tokens are an estimate: each reply as long as the live one."""
        name = str(job.payload["interaction_id"])
        with self._journal.write() as session:
            jobs.finish(session, ShadowJob, job)
            if n_tokens:
                shadows.charge(session, name, n_tokens)
            shadows.drop(session, name, reason)
        log.info("a shadow group is dropped", turn=name, reason=reason)

    def _give_back(self, job: jobs.Leased, reason: str, n_tokens: int) -> None:
        """Draw the group later, or drop it after its last try."""
        name = str(job.payload["interaction_id"])
        with self._journal.write() as session:
            is_dead = jobs.fail(session, ShadowJob, job, reason, max_attempts=MAX_TRIES, delay=RETRY_SECONDS)
            if n_tokens:
                shadows.charge(session, name, n_tokens)
            if is_dead:
                shadows.drop(session, name, f"broken off {MAX_TRIES} times: {reason}")


def _judges(settings: Settings) -> list[str]:
    """The models that would score a group."""
    return [settings.judge.model or BASE_NAME, *filter(None, [settings.judge.fallback_model])]
