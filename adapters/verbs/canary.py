"""An operator's verbs on canaries and watches."""

import time
from collections.abc import Mapping
from typing import Any

from sqlmodel import Session

from burnish import serving_table
from burnish.adapters.evidence import observation
from burnish.adapters.evidence.comparison import Comparison, Rules
from burnish.adapters.evidence.sequential import odds
from burnish.adapters.evidence.turn_slices import with_heads
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import agents, auto_rollback, canaries, lifecycle
from burnish.adapters.registry.versions import check_servable
from burnish.adapters.serving import publish
from burnish.adapters.serving.prepare import routes_file
from burnish.config import Settings
from burnish.errors import Conflict
from burnish.journal import Journal
from burnish.journal.jobs import enqueue
from burnish.journal.listing.figures import share
from burnish.journal.tables import CanaryRow, LoadJob
from burnish.records import TRIALS, UNDECIDED, CanaryState, Observation, VersionName


def start(settings: Settings, journal: Journal, agent: str, version: int, *, share: float | None, actor: str) -> str:
    """Put an older version on canary beside the live one. Returns what happened or will happen.

    Raises NotFound, Conflict (refused, live, undecided, or another canary runs) or AdapterError (its files have
    changed).
    """
    name = VersionName(agent, version)
    with journal.read() as session:
        live = lifecycle.alias(session, agent) or 0
        row = lifecycle.version(session, agent, version)
        check_servable(row)
        if version == live:
            raise Conflict(f"{name} is live already")
        if row.state in UNDECIDED:
            raise Conflict(f"{name} is still on trial, and decided by itself")
        for other in canaries.running(session, agent):
            if other.kind in TRIALS:
                raise Conflict(
                    f"{VersionName(agent, other.version)} is on {other.kind}; `burnish canary stop` ends it",
                    code="canary_runs",
                )
    AdapterStore(settings.adapters_dir).verify(agent, version)
    file = routes_file(settings)
    route = serving_table.watch(file).current().agents.get(agent)
    if route is not None and version in route.loaded:
        canary = observation.canary(journal, settings, agent, live, share)
        publish.move(journal, file, agent, version, lambda session: canary.of(session, name, actor))
        return f"{name} answers {canary.share:.0%} of the conversations, beside v{live}"
    subject = f"{name}#canary"
    with journal.write() as session:
        queued = session.get(LoadJob, subject)
        if queued is not None and queued.state in ("done", "dead"):
            session.delete(queued)
            session.flush()
        payload = {"agent": agent, "version": version, "canary": True, "share": share, "actor": actor}
        enqueue(session, LoadJob, subject, payload)
    return f"{name} is being loaded; its canary begins when every engine has it"


def stop(
    settings: Settings,
    journal: Journal,
    agent: str,
    *,
    kind: Observation = Observation.CANARY,
    actor: str,
    reason: str | None = None,
) -> str:
    """Stop what runs: a version on canary or shadow canary is refused; a watched version stays live without its watch.

    Raises Conflict if nothing of the kind runs.
    """
    said = reason or "stopped by hand"
    with journal.write() as session:
        agents.find(session, agent)
        kinds = TRIALS if kind in TRIALS else (kind,)
        row = next((row for row in canaries.running(session, agent) if row.kind in kinds), None)
        if row is None:
            raise Conflict(
                f"no {kind} of {agent!r} runs; `burnish canary status` shows what there was", code="no_canary"
            )
        name = VersionName(agent, row.version)
        if kind in TRIALS:
            auto_rollback.refuse_canary(session, row, said, actor=actor)
        else:
            canaries.end(session, row, CanaryState.CANCELLED, said, actor=actor)
    publish.sync(journal, routes_file(settings), agent)
    return f"{name} was refused: {said}" if kind in TRIALS else f"{name} stays live and is watched no longer"


def status(session: Session, agent: str, limit: int = 10) -> dict[str, Any]:
    """The agent's hold, its observations, newest first, with the state of each test, and the live version by slice."""
    seen = [summary(row) for row in canaries.history(session, agent, limit)]
    seen = [{**each, "slices": with_heads(session, each["slices"])} if "slices" in each else each for each in seen]
    found = agents.find(session, agent)
    return {
        "agent": agent,
        "live": lifecycle.alias(session, agent),
        "held": found.held,
        "learning_paused": found.is_paused,
        "slices": by_slice(session, agent),
        "observations": seen,
    }


def summary(row: CanaryRow) -> dict[str, Any]:
    """One observation as plain values. `tests` has E and its bound by metric, `slices` the judged rewards by slice, the
    worst first, and `course` both shares of good turns with their bounds as the version's judged turns came in, if
    anything was compared.
    """
    columns = (
        "canary_id",
        "agent",
        "version",
        "baseline",
        "kind",
        "share",
        "state",
        "reason",
        "started_at",
        "ended_at",
    )
    shown = {name: getattr(row, name) for name in columns}
    state: Any = row.evidence.get("comparison")
    if not isinstance(state, Mapping):
        return shown
    seen = Comparison.of(Rules(), state)
    tests = {
        name: {
            "evidence": odds(test.peak),
            "log_e": round(test.log_e, 4),
            "log_e_peak": round(test.peak, 4),
            "alpha": alpha,
        }
        for name, (test, alpha) in seen.tests.items()
    }
    arms = {
        name: {
            "turns": arm.n,
            "judged": arm.n_judged,
            "good": arm.n_good,
            "left_out": arm.n_capped,
            "users": len(arm.users),
        }
        for name, arm in (("version", seen.version), ("baseline", seen.baseline))
    }
    rate = seen.known.rate if seen.known else None
    pairs = {name: {"lost": p.n_losses, "won": p.n_wins, "tied": p.n_ties} for name, p in seen.pairs.items()}
    hours = ((row.ended_at or time.time()) - row.started_at) / 3600
    slices = seen.slices.table(seen.rules.slice_margin, seen.rules.alpha)
    counts = {"hours": round(hours, 3), "baseline_rate": rate, "turns": arms, "pairs": pairs}
    course = [
        {
            "judged": int(n),
            "version": share(int(good), int(n - good)),
            "baseline": share(int(base_good), int(base_n - base_good)),
            "log_e": log_e,
        }
        for n, good, base_n, base_good, log_e in seen.course
    ]
    return {**shown, **counts, "tests": tests, "slices": slices, "course": course}


def by_slice(session: Session, agent: str) -> dict[str, Any] | None:
    """How the live version does in each slice of the traffic, the worst first: by its latest observation with judged
    turns, or by the gate's held-out replay. None if neither has slices.

    `of` says where the figures are from. `worst` is the slice with the strongest evidence that it fell.
    """
    live = lifecycle.alias(session, agent) or 0
    for row in canaries.history(session, agent, 10):
        found = summary(row).get("slices") if row.version == live else None
        if found:
            shares = [{**each, **_shares(each)} for each in with_heads(session, found)]
            where = {"of": row.kind, "version": live, "baseline": row.baseline}
            return {**where, "worst": found[0]["slice"], "by_slice": shares}
    evidence = lifecycle.version(session, agent, live).evidence if live else {}
    told: Any = evidence.get("slices")
    if not told:
        return None
    found = with_heads(session, told["by_slice"])
    return {**told, "of": "held-out replay", "version": live, "baseline": None, "by_slice": found}


def _shares(each: Mapping[str, Any]) -> dict[str, Any]:
    """Both versions' judged and good turns, with the shares of good ones and their bounds."""
    return {
        name: {**each[name], **share(each[name]["good"], each[name]["judged"] - each[name]["good"])}
        for name in ("version", "baseline")
    }
