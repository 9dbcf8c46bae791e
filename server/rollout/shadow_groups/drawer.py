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

import structlog

from burnish import serving_table
from burnish.config import BASE_NAME, Settings
from burnish.errors import EngineError, EngineUnavailable
from burnish.journal import Journal, jobs, judge_checks, shadows
from burnish.journal.tables import InteractionRow, ShadowGroupRow, ShadowJob
from burnish.journal.turns import from_bytes, messages_of
from burnish.records import GroupState
from burnish.server.rollout.shadow_groups import group
from burnish.server.rollout.shadow_groups.engine_source import Source
from burnish.server.rollout.shadow_groups.group import Interrupted, Prompt, Unfit
from burnish.server.rollout.shadow_groups.picker import MAX_AGE, pick

log = structlog.get_logger(__name__)
LEASE_SECONDS = 150.0
MINUTE = 60.0
PICK_SECONDS = 2.0
MAX_TRIES = 8
"""How many times a group's drawing may be interrupted."""


class Drawer:
    """One per serving host. `run_once` draws at most one group and returns True if it did."""

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

    async def run_forever(self, is_stopping: Callable[[], bool], interval: float = 0.5) -> None:
        """Draw until `is_stopping()`. Errors never reach serving."""
        self._is_stopping, is_away = is_stopping, False
        while not is_stopping():
            try:
                has_drawn = await self.run_once()
                is_away = False
            except EngineUnavailable as error:
                has_drawn = False
                if not is_away:
                    log.info("no shadows while the engine does not answer", error=str(error))
                is_away = True
            except Exception:  # the swapper runs in the same process and must not end
                log.exception("drawing shadows failed")
                has_drawn = False
            if not has_drawn:
                await asyncio.sleep(interval)

    async def run_once(self) -> bool:
        """Begin groups, look for an idle engine, draw the group that has waited longest. Raises EngineUnavailable."""
        if time.monotonic() > self._picked_at + PICK_SECONDS:
            self._picked_at = time.monotonic()
            self._pick()
        if not self._has_work() or (source := await self._idle()) is None:
            return False
        with self._journal.write() as session:
            leased = jobs.lease(session, ShadowJob, "drawer", seconds=LEASE_SECONDS)
        for job in leased:
            await self._draw(job, source)
        return bool(leased)

    def _pick(self) -> None:
        for agent in serving_table.watch(self._file).current().agents.values():
            settings = self._of(agent.name)
            if settings.has_groups:
                with self._journal.write() as session:
                    if not (settings.groups.grader == "rubric" and judge_checks.are_unfit(session, _judges(settings))):
                        pick(session, agent.name, {agent.live, *agent.loaded}, settings)

    def _has_work(self) -> bool:
        """True if a group waits and the minute's tokens are not spent."""
        with self._journal.read() as session:
            counts = jobs.counts(session, ShadowJob)
            spent = shadows.tokens_since(session, time.time() - MINUTE)
        return (
            bool(counts.get("queued", 0) + counts.get("leased", 0)) and spent < self._settings.groups.tokens_per_minute
        )

    async def _idle(self) -> Source | None:
        for source in self._sources:
            if await source.n_requests() <= self._settings.recipe.group_max_others:
                return source
        return None

    async def _draw(self, job: jobs.Leased, source: Source) -> None:
        name = str(job.payload["interaction_id"])
        asked = self._asked(name)
        if asked is None:  # the turn and its group were deleted, or the group has ended
            return self._finish(job)
        prompt, n, max_tokens, estimate = asked
        try:
            if prompt is None:
                raise Unfit("version gone: it was unloaded, or the turn became too old, before the group was drawn")
            drawn = await group.draw(source, prompt, n, max_tokens, self._may_go_on, self._look)
        except Unfit as error:
            self._drop(job, str(error), 0 if prompt is None else estimate)
        except Interrupted as error:
            self._give_back(job, str(error), estimate)
        except EngineUnavailable as error:
            self._give_back(job, str(error), 0)
            raise
        except EngineError as error:
            self._drop(job, f"refused: {error}", estimate)
        else:
            for_judge = self._of(str(job.payload["agent"])).groups.grader == "rubric"
            with self._journal.write() as session:
                if jobs.finish(session, ShadowJob, job) and shadows.file(session, name, drawn, for_judge=for_judge):
                    log.info("drew shadows", turn=name, n=len(drawn), tokens=sum(len(each.token_ids) for each in drawn))

    def _asked(self, name: str) -> tuple[Prompt | None, int, int, int] | None:
        """The drawing for a turn: the prompt (None if nothing can answer it any more), the number of replies, their
        limit, and the expected tokens.
        """
        with self._journal.read() as session:
            row, turn = session.get(ShadowGroupRow, name), session.get(InteractionRow, name)
            if row is None or turn is None or row.state != GroupState.DRAWING:
                return None
            max_tokens = self._of(row.agent).recipe.group_max_tokens
            table = serving_table.watch(self._file).current()
            agent = table.agents.get(row.agent)
            n, ids = row.n_members - 1, from_bytes("i", turn.token_ids)
            estimate = n * len(ids)
            is_there = agent is not None and (row.version in (0, agent.live) or row.version in agent.loaded)
            if agent is None or not is_there or time.time() > turn.ended_at + MAX_AGE:
                return None, n, max_tokens, estimate
            tools = messages_of(session, [turn.tools_digest])[0] if turn.tools_digest else ()
            prompt = Prompt(
                model=agent.engine_model(row.version, table.base_name),
                messages=messages_of(session, turn.message_digests),
                tools=tuple(tools),  # type: ignore[arg-type]
                temperature=float(row.sampling["temperature"]),
                prompt_ids=from_bytes("i", turn.prompt_ids),
                last_id=ids[-1],
            )
            return prompt, n, max_tokens, estimate

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
            is_dead = jobs.fail(session, ShadowJob, job, reason, max_attempts=MAX_TRIES)
            if n_tokens:
                shadows.charge(session, name, n_tokens)
            if is_dead:
                shadows.drop(session, name, f"broken off {MAX_TRIES} times: {reason}")


def _judges(settings: Settings) -> list[str]:
    """The models that would score a group."""
    return [settings.judge.model or BASE_NAME, *filter(None, [settings.judge.fallback_model])]
