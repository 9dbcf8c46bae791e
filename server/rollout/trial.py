"""A candidate's trial: it is loaded, probed and asked, and the evidence goes to the gate. Serving goes on.

An engine that refuses a request says something about the candidate. An engine that does not answer says nothing, and
the trial is put off (EngineUnavailable).
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog
from sqlalchemy import select
from sqlmodel import col

from burnish.adapters.evidence.acceptance import Acceptance, best, of_live
from burnish.adapters.evidence.gate import Evidence, Measure, Probe, Retention, decide
from burnish.adapters.files.store import AdapterStore
from burnish.errors import AdapterError, EngineError, EngineUnavailable, JournalError
from burnish.journal import Journal
from burnish.journal.blobs import prompts_of
from burnish.journal.tables import InteractionRow
from burnish.records import VersionName
from burnish.server.rollout.engine.engine import Engine
from burnish.server.rollout.forgetting_prompts import RetentionSet

log = structlog.get_logger(__name__)
N_WARM = 1
N_PLACES = 4
"""Places of the probe that are asked, those with the largest change first."""
N_AT_ONCE = 8
"""Parallel requests of a trial while nobody else is served. Beside live streams it is one, because each is felt in the
step that it shares.
"""


class Trial:
    """How candidates are tried on one set of engines."""

    def __init__(
        self,
        journal: Journal,
        store: AdapterStore,
        engines: Sequence[Engine],
        retention: RetentionSet,
        *,
        base_name: str,
        tolerance: float,
        margin: float,
        acceptance: RetentionSet | None = None,
        acceptance_margin: float = 0.0,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_busy` says whether clients are being served now."""
        self._journal = journal
        self._store = store
        self._engines = engines
        self._retention = retention
        self._base_name = base_name
        self._tolerance = tolerance
        self._margin = margin
        self._acceptance = acceptance
        self._acceptance_margin = acceptance_margin
        self._is_busy = is_busy

    async def gather(self, name: VersionName) -> Evidence:
        """All evidence on a candidate. If it is sound, it is loaded on every engine afterwards."""
        evidence = Evidence(is_mechanical_checked=True)
        try:
            self._store.verify(name.agent, name.version)
            await self.load(name)
            unchanged = _read_unchanged(self._store, name, self._retention.digest)
            asked = (self._engines[0], str(name), self._base_name, self._margin, unchanged)
            retention = asyncio.create_task(
                self._retention.compare(*asked)
            )  # in parallel, because hardly any candidate fails its probe
            try:
                probes = [await self._probe(engine, name) for engine in self._engines]
                evidence = replace(evidence, probe=max(probes, key=lambda probe: probe.gap))
                if decide(replace(evidence, needs_retention=False)).has_passed:
                    found = await retention
                    evidence = replace(evidence, retention=found, left_out=self._left_out(found))
                if self._acceptance is not None and decide(evidence).has_passed:
                    accepted = await self._accepted(self._acceptance, name)
                    evidence = replace(evidence, acceptance=accepted, needs_acceptance=True)
            finally:
                retention.cancel()
                await asyncio.gather(retention, return_exceptions=True)
        except AdapterError as error:
            return replace(evidence, mechanical_fault=str(error))
        except EngineUnavailable:
            raise
        except EngineError as error:
            return replace(evidence, mechanical_fault=f"the engine refused it: {error}")
        return evidence

    def _left_out(self, found: Retention) -> tuple[str, ...]:
        """What predictions cannot show in place of answers."""
        standing = self._retention.standing if found.measure is Measure.PREDICTIONS else None
        return (f"answers to forgetting prompts: {standing.sentence}",) if standing is not None else ()

    async def _accepted(self, prompts: RetentionSet, name: VersionName) -> Acceptance:
        """How many acceptance prompts the version passes, beside the best version before it."""
        with self._journal.read() as session:
            n_best, n_live = best(session, name.agent, prompts.digest), of_live(session, name.agent, prompts.digest)
        n_passed = await prompts.n_passed(self._engines[0], str(name))
        return Acceptance(prompts.n, n_passed, n_best, self._acceptance_margin, prompts.digest, n_live)

    async def load(self, name: VersionName) -> None:
        """Load on every engine, or on none."""
        path = str(self._store.path(name.agent, name.version).resolve())
        done: list[Engine] = []
        try:
            for engine in self._engines:
                if str(name) not in await engine.models():
                    await engine.load(str(name), path)
                    done.append(engine)
        except EngineError:
            for engine in done:
                await engine.unload(str(name))
            raise

    async def warm(self, name: VersionName) -> None:
        """Let the version read the newest prompts, so that its first real request finds them cached. The engine may
        refuse one.
        """
        with self._journal.read() as session:
            newest = (
                select(col(InteractionRow.prompt_parts), col(InteractionRow.prompt_rest))
                .where(col(InteractionRow.agent) == name.agent)
                .order_by(col(InteractionRow.ended_at).desc())
                .limit(N_WARM)
            )
            try:
                prompts = [list(ids) for ids in prompts_of(session, session.connection().execute(newest).tuples())]
            except JournalError as error:  # a turn was erased at this moment
                log.info("a version cannot be warmed", version=str(name), error=str(error))
                return
        asked = [prompt for prompt in prompts if prompt]
        await asyncio.gather(*(self._warm(engine, name, asked) for engine in self._engines))

    async def _warm(self, engine: Engine, name: VersionName, prompts: Sequence[Sequence[int]]) -> None:
        try:
            await self._ask(engine, name, prompts)
        except EngineUnavailable:
            raise
        # for example a prompt from a time with a longer context: that says nothing against the version
        except EngineError as error:
            log.info("a version cannot be warmed", version=str(name), engine=engine.url, error=str(error))

    async def _probe(self, engine: Engine, name: VersionName) -> Probe:
        """The engine's log-probs of the probe's tokens beside the learner's."""
        axes: dict[str, list[float]] = {key: [] for key in ("engine", "candidate", "parent", "base")}
        places = _read_probe(self._store, name)[:N_PLACES]
        answers = await self._ask(engine, name, [tokens for tokens, _ in places])
        for (_, place), logprobs in zip(places, answers, strict=True):
            # A token that the engine does not report is at most as likely as the last one that it reports.
            axes["engine"].append(logprobs.get(place["token_id"], min(logprobs.values())))
            for key in ("candidate", "parent", "base"):
                axes[key].append(float(place[key]))
        return Probe(**axes, tolerance=self._tolerance)

    async def _ask(
        self, engine: Engine, name: VersionName, prompts: Sequence[Sequence[int]]
    ) -> list[Mapping[int, float]]:
        """The next token's log-probs after each of `prompts`: in parallel, or one by one beside live streams."""
        slots = asyncio.Semaphore(1 if self._is_busy() else N_AT_ONCE)

        async def ask(tokens: Sequence[int]) -> Mapping[int, float]:
            async with slots:
                return await engine.next_logprobs(str(name), tokens)

        return await asyncio.gather(*map(ask, prompts))


def _read_unchanged(store: AdapterStore, name: VersionName, digest: str) -> list[int]:
    """The forgetting prompts to which the version gives the base's answers, by the learner's account. Empty if it has
    none.
    """
    file = store.path(name.agent, name.version) / "retained.json"
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        return [int(place) for place in record["unchanged"]] if digest and record["prompts"] == digest else []
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AdapterError(f"{file} is no list of retained answers: {error!r}") from error


def _read_probe(store: AdapterStore, name: VersionName) -> list[tuple[list[int], dict[str, Any]]]:
    """The probe's positions as (tokens before it, the position). Raises AdapterError if it cannot be read."""
    file = store.path(name.agent, name.version) / "probe.json"
    try:
        recorded = json.loads(file.read_text(encoding="utf-8"))
        rows = recorded["rows"]
        return [
            ([*rows[p["row"]]["prompt_ids"], *rows[p["row"]]["completion_ids"][: p["index"]]], p)
            for p in recorded["positions"]
        ]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise AdapterError(f"{file} is no probe: {error!r}") from error
