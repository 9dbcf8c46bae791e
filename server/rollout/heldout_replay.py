"""The held-out replay: candidate and live version answer held-out live turns, and the judge compares the replies.

It takes several looks, because the judge works in its own time. The first look asks the versions; later ones check
whether all pairs are decided. Slices of the traffic that may have fallen then get further rounds of turns, if so many
are held out. Serving goes on, and the questions wait for live traffic. A restart repeats nothing,
because the replies are in the journal.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import structlog
from sqlalchemy import select
from sqlmodel import Session, col

from burnish.adapters.evidence import slices as slicing
from burnish.adapters.evidence.heldout_replay import Measures, Replay, Rules, faults
from burnish.adapters.evidence.holdout import is_held_out
from burnish.adapters.evidence.slices import Slices, State
from burnish.adapters.evidence.turn_slices import slices_of
from burnish.adapters.registry.personal import is_listed
from burnish.config import Settings
from burnish.errors import EngineError, EngineUnavailable, Postponed
from burnish.journal import Journal
from burnish.journal.tables import CompareJob, ComparisonRow, InteractionRow
from burnish.journal.turns import messages_of
from burnish.records import Message, VersionName
from burnish.reply_metrics import repetition, tool_calls
from burnish.server.rollout import reply_pairs
from burnish.server.rollout.engine.engine import Engine, Reply
from burnish.server.rollout.engine.vllm import LOW_PRIORITY

log = structlog.get_logger(__name__)
CONCURRENCY = 8
LOOKED_THROUGH = 20
"""How many times the wanted turns are searched for held-out ones, from the latest back."""
SEARCHED = 240_000
"""Latest turns that are searched for held-out ones of a further round. With the default `gate.holdout`, 12,000 of them
are held out. A fall of 15 points in one of 12 slices needs about that many (`python -m benchmarks.seen --only slices`).
"""
FEWEST = 20
"""Turns that a further round needs."""
CHUNK = 500


class Replayer:
    """Replays for one set of engines. The first engine answers."""

    def __init__(
        self,
        journal: Journal,
        engine: Engine,
        settings_of: Callable[[str], Settings],
        *,
        rules: Rules = Rules(),  # noqa: B008
    ) -> None:
        self._journal = journal
        self._engine = engine
        self._settings_of = settings_of
        self._rules = rules

    def left_out(self, agent: str) -> str | None:
        """Why a candidate of `agent` goes without a replay. None if it needs one.

        In the tier `auto` nothing waits for held-out turns that may never come.
        """
        settings = self._settings_of(agent)
        if settings.gate.tier == "full":
            return None
        if settings.gate.tier == "fast":
            return 'held-out replay: gate.tier is "fast"'
        if not settings.holdout:
            return "held-out replay: judge.model is not set, and the base compares no replies"
        with self._journal.read() as session:
            n = len(_turns(session, agent, settings.holdout, self._rules.n_min))
        return (
            f"held-out replay: {n} held-out turns so far, {self._rules.n_min} needed" if n < self._rules.n_min else None
        )

    async def outcome(self, name: VersionName, live: int, live_model: str) -> Replay:
        """The evidence on candidate `name` beside version `live`, which is served as `live_model`.

        Raises Postponed while there are too few held-out turns, or pairs that the judge has not decided within
        `Rules.judge_seconds`.
        """
        rows, rules = self._rows(name, live), self._rules_of(name.agent)
        if not rows:
            with self._journal.read() as session:
                turns = _turns(session, name.agent, self._settings_of(name.agent).holdout, rules.n_turns)
            if len(turns) < rules.n_min:
                raise Postponed(
                    f"{len(turns)} held-out turns, {rules.n_min} needed: gate.holdout sets aside "
                    f'{self._settings_of(name.agent).holdout:.0%} of the sessions; gate.tier = "auto" does not wait '
                    f"for them"
                )
            await self._put(name, live, live_model, turns)
            rows = self._rows(name, live)
        is_late = time.time() - min(row.created_at for row in rows) >= rules.judge_seconds
        n_open = sum(row.outcome is None and row.reason is None for row in rows)
        if n_open and not is_late:
            raise Postponed(f"{n_open} of {len(rows)} held-out pairs wait for the judge")
        with self._journal.read() as session:
            slices = _slices(session, rows, rules)
            found = replace(_replay(session, rows[: rules.n_turns], rules), slices=slices)
        if is_late or faults(found):
            return found
        further = await asyncio.to_thread(self._further, name.agent, rows, slices, rules)
        if further:
            await self._put(name, live, live_model, further)
            raise Postponed(f"{len(further)} more held-out turns are asked, for slices that may have fallen")
        return found

    def _rules_of(self, agent: str) -> Rules:
        return replace(self._rules, slice_margin=self._settings_of(agent).gate.slice_margin)

    def _further(self, agent: str, rows: Sequence[ComparisonRow], slices: Slices, rules: Rules) -> list[InteractionRow]:
        """The turns of a further round, for slices that are open. Empty if there are too few."""
        wanted = {one.name for one in slices.of(State.OPEN)}
        n = min(rules.n_turns, rules.most_turns - len(rows))
        if not wanted or n < FEWEST or len(rows) < rules.n_turns:
            return []
        asked = {row.interaction_id for row in rows}
        with self._journal.read() as session:
            held = _held_out(session, agent, self._settings_of(agent).holdout, SEARCHED)
            left = _with_slices(session, (turn for turn in held if turn not in asked))
            names = list(slicing.chosen(left, wanted, n))
            return [session.get_one(InteractionRow, turn) for turn in names] if len(names) >= FEWEST else []

    def _rows(self, name: VersionName, live: int) -> Sequence[ComparisonRow]:
        """Its pairs beside `live`, in the order in which they were asked. Pairs beside an earlier live version, or from
        a shadow canary, are deleted.
        """
        mine = (col(ComparisonRow.agent) == name.agent, col(ComparisonRow.version) == name.version)
        order = (col(ComparisonRow.created_at), col(ComparisonRow.interaction_id))
        with self._journal.read() as session:
            rows = session.scalars(select(ComparisonRow).where(*mine).order_by(*order)).all()
        if all(row.baseline == live for row in rows):
            return rows
        with self._journal.write() as session:
            for row in rows:
                session.delete(session.get_one(ComparisonRow, (row.agent, row.version, row.interaction_id)))
                if (job := session.get(CompareJob, f"{name}|{row.interaction_id}")) is not None:
                    session.delete(job)
        return ()

    async def _put(self, name: VersionName, live: int, live_model: str, turns: Sequence[InteractionRow]) -> None:
        """Ask both versions `turns`, and keep the pairs."""
        with self._journal.read() as session:
            asked = [
                (turn, messages_of(session, turn.message_digests), reply_pairs.tools_of(session, turn))
                for turn in turns
            ]
        slots = asyncio.Semaphore(CONCURRENCY)

        async def ask(
            model: str, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
        ) -> Reply | EngineError:
            async with slots:
                try:
                    return await self._engine.chat(
                        model, messages, tools=tools, max_tokens=self._rules.max_tokens, priority=LOW_PRIORITY
                    )
                except EngineUnavailable:
                    raise
                except EngineError as error:  # for example a context that is too long: the turn makes no pair
                    return error

        answered = await asyncio.gather(
            *(asyncio.gather(ask(str(name), said, tools), ask(live_model, said, tools)) for _, said, tools in asked)
        )
        n_refused = sum(any(isinstance(reply, EngineError) for reply in pair) for pair in answered)
        if n_refused:
            log.warning("held-out turns cannot be asked", version=str(name), n=n_refused, n_asked=len(asked))
            if lost := {str(name), live_model}.difference(await self._engine.models()):
                raise EngineUnavailable(
                    f"the engine has lost {', '.join(sorted(lost))} while it was asked; it is asked again"
                )
        redacts = is_listed(name.agent, self._settings_of(name.agent).journal.redact)
        with self._journal.write() as session:
            for (turn, *_), (new, old) in zip(asked, answered, strict=True):
                if isinstance(new, EngineError) or isinstance(old, EngineError):
                    why = new if isinstance(new, EngineError) else old
                    reply_pairs.put_unasked(session, name, live, turn.interaction_id, str(why))
                else:
                    reply_pairs.put(session, name, live, turn.interaction_id, new, old, redacts=redacts)


def _turns(session: Session, agent: str, holdout: float, n: int) -> list[InteractionRow]:
    """The agent's latest held-out turns."""
    names = _held_out(session, agent, holdout, LOOKED_THROUGH * n)[:n]
    return [session.get_one(InteractionRow, name) for name in names]


def _held_out(session: Session, agent: str, holdout: float, n: int) -> list[str]:
    """The held-out ones of the agent's latest `n` turns that ended by themselves in a reply to somebody, latest
    first.
    """
    whole = (
        col(InteractionRow.agent) == agent,
        col(InteractionRow.kind) == "main",
        col(InteractionRow.choice) == 0,
        col(InteractionRow.is_aborted).is_(False),
        col(InteractionRow.may_train).is_(True),
        col(InteractionRow.quarantine).is_(None),
        col(InteractionRow.finish_reason).in_(("stop", "tool_calls")),
    )
    wanted = select(col(InteractionRow.interaction_id), col(InteractionRow.session_id)).where(*whole)
    latest = session.connection().execute(wanted.order_by(col(InteractionRow.ended_at).desc()).limit(n)).tuples()
    return [turn for turn, session_id in latest if is_held_out(session_id, holdout)]


def _with_slices(session: Session, turns: Iterable[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """The turns with their slices, read as they are asked for."""
    rest = iter(turns)
    while some := list(islice(rest, CHUNK)):
        known = slices_of(session, some)
        yield from ((turn, known.get(turn, ())) for turn in some)


def _slices(session: Session, rows: Sequence[ComparisonRow], rules: Rules) -> Slices:
    """The decided pairs by slice, in the order in which they were asked. The first round says which slices there
    are.
    """
    known = slices_of(session, [row.interaction_id for row in rows])
    first = [known.get(row.interaction_id, ()) for row in rows[: rules.n_turns]]
    found = Slices(slicing.known(first), rules.slice_margin)
    for row in rows:
        if row.outcome is not None:
            found.add(row.interaction_id, known.get(row.interaction_id, ()), row.outcome)
    return found


def _replay(session: Session, made: Sequence[ComparisonRow], rules: Rules) -> Replay:
    rows = [row for row in made if reply_pairs.was_asked(row)]
    outcomes = [row.outcome for row in rows]
    turns = [session.get(InteractionRow, row.interaction_id) for row in rows]
    had_tools = [turn is not None and turn.tools_digest is not None for turn in turns]
    return Replay(
        n=len(rows),
        n_won=outcomes.count(1),
        n_lost=outcomes.count(-1),
        n_undecided=outcomes.count(None),
        candidate=measures(messages_of(session, [row.candidate_digest for row in rows]), had_tools),
        live=measures(messages_of(session, [row.baseline_digest for row in rows]), had_tools),
        rules=rules,
        n_unasked=len(made) - len(rows),
    )


def measures(replies: Sequence[Mapping[str, Any]], had_tools: Sequence[bool]) -> Measures:
    """Measures of replies as `burnish.server.rollout.reply_pairs` keeps them. `offered`: for each, whether it had
    tools; then a call left in its text is broken.
    """
    calls = [tool_calls(reply, offered) for reply, offered in zip(replies, had_tools, strict=True)]
    n = max(1, len(replies))
    return Measures(
        length=sum(int(reply.get("n_tokens") or 0) for reply in replies) / n,
        repetition=sum(repetition(str(reply.get("content") or "").split()) for reply in replies) / n,
        n_calls=sum(n_calls for n_calls, _ in calls),
        n_broken=sum(n_broken for _, n_broken in calls),
    )
