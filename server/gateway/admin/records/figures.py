"""Figures about an agent over HTTP: what learning does, traffic, scores by version, fates of turns, judges."""

import time
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from sqlmodel import Session

from burnish.adapters.registry import agents, lifecycle, versions
from burnish.adapters.registry.learning_state import learning_state
from burnish.adapters.registry.lineage import aliases_of
from burnish.adapters.registry.personal import family_of
from burnish.adapters.verbs.canary import by_slice
from burnish.config import Settings, overrides
from burnish.errors import RequestError
from burnish.files import LOW_DISK, low_disk
from burnish.journal import Journal, judge_checks
from burnish.journal.listing import figures, judge_figures
from burnish.journal.tables import AgentRow
from burnish.keys import Scope
from burnish.segments.lag import LATE, WAITING, lag
from burnish.server.gateway.access.keyring import Caller
from burnish.server.gateway.admin.caller import Access
from burnish.server.gateway.admin.field_types import AgentPath

DAY = 86_400.0
MONTH = 30
LATEST = 8
"""Versions that the status names, the newest."""


def router(settings: Settings, journal: Journal, access: Access) -> APIRouter:
    """`GET /agents/{agent}/status` and `GET /agents/{agent}/judges`."""
    may_see = Depends(access.on_agent(Scope.VIEWER))
    made = APIRouter()

    @made.get("/agents/{agent}/status", dependencies=[may_see])
    def show_status(
        agent: AgentPath,
        seconds: Annotated[float, Query(ge=60, le=366 * DAY, description="How far back the traffic goes.")] = DAY,
    ) -> dict[str, Any]:
        """What learning does and why not, the aliases, the latest versions, the traffic by version, and the score of
        rated replies by version with the bounds of its 95 % interval. `progress` says whether the agent got better.
        `slices` is the live version by slice of the traffic, the worst first. `alarms` are sentences about what needs a
        person.
        """
        now = time.time()
        with journal.read() as session:
            row = agents.find(session, agent)
            learning = asdict(learning_state(session, _own(settings, row), agent))
            pointed = aliases_of(session, agent)
            scored = figures.scores(session, agent)
            live = lifecycle.alias(session, agent) or 0
            return {
                "agent": agent,
                "at": now,
                "learning": learning,
                "aliases": {alias: version for version, names in pointed.items() for alias in names},
                "versions": versions.latest(session, agent, LATEST),
                "held": row.held,
                "is_paused": row.is_paused,
                "alarms": _alarms(session, settings, learning, row),
                "seconds": seconds,
                "traffic": figures.traffic(session, agent, now, seconds / figures.BUCKETS),
                "scores": scored,
                "progress": figures.progress(scored, live),
                "slices": by_slice(session, agent),
                "latest": figures.fates(session, agent),
            }

    @made.get("/agents/{agent}/judges")
    def list_judges(
        agent: AgentPath,
        days: Annotated[int, Query(ge=1, le=366, description="How many days back the costs go.")] = MONTH,
        caller: Caller = Depends(access.on_agent(Scope.VIEWER)),  # noqa: B008
    ) -> dict[str, Any]:
        """Every judge on file: whether it may speak, why, and the figures of its latest check.

        `costs` are the votes, tokens and seconds that judging the agent's replies took, by day (UTC), model and
        purpose, with those of the checks. `agreement` says how often people's latest ratings agree with each judge and
        with one another.
        """
        with journal.read() as session:
            rows = judge_checks.filed(session).values()
            found = [row.model_dump() for row in sorted(rows, key=lambda row: row.judge_id)]
            costs = judge_figures.costs(session, family_of(agent), time.time() - (days - 1) * DAY)
            agreed = judge_figures.agreement(session, agent, caller.tenant)
        configured = {"agent": agent, "model": settings.judge.model, "votes": settings.judge.votes}
        return {**configured, "judges": found, "days": days, "costs": costs, "agreement": agreed}

    return made


def _own(settings: Settings, row: AgentRow) -> Settings:
    try:
        return overrides.laid_over(settings, row.settings)
    except RequestError:  # stored by an earlier release; the learner says so
        return settings


def _alarms(session: Session, settings: Settings, learning: dict[str, Any], row: AgentRow) -> list[str]:
    found = [learning["sentence"]] if learning["is_alarm"] else []
    if (waits := lag(session, settings.segments_dir, time.time())) > LATE:
        found.append(WAITING.format(waits))
    if (free := low_disk(settings.state_dir)) is not None:
        found.append(LOW_DISK.format(free))
    if row.held is not None:
        found.append(f"nothing is promoted automatically: {row.held}")
    found += [
        f"judge {each.judge_id} is unfit: {each.reason}"
        for each in judge_checks.filed(session).values()
        if each.state == "unfit"
    ]
    return found
