"""The next state of a turn: what came back after its reply, typed, with its provenance and its signals.

A user's reply or a tool's result is the strongest next state. If nobody answered, the reply was asked for again, its
session was closed, or it was abandoned. Such a next state is replaced if the conversation goes on after all.
"""

import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import insert
from sqlmodel import Session

from burnish.journal.bulk import select_in
from burnish.journal.linked_turns import LinkedTurn
from burnish.journal.tables import FeedbackRow, NextStateRow
from burnish.journal.turns import feedback_of, rows_of
from burnish.messages import text_of
from burnish.records import Feedback, Message, NextStateKind, Provenance, Signal, SignalKind
from burnish.rewards import environment_fault, needs_judge
from burnish.server.ingest import linking
from burnish.server.ingest.patterns import harness_patterns
from burnish.server.ingest.patterns.tool_signals import signals_of
from burnish.server.ingest.prepared import Prepared
from burnish.server.ingest.turn_kind import Kind
from burnish.server.ingest.working_set import WorkingSet

_NAME_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_WEB = frozenset(
    {"web", "websearch", "webfetch", "fetch", "browse", "browser", "http", "https", "url", "urls", "crawl", "scrape"}
)
"""Parts of a tool's name (`web_search`, `fetchUrl`) that mean the web."""
_TOOLS = frozenset({"tool", "function"})
_ENDED = (
    "SELECT turn.interaction_id FROM interaction AS turn "
    "LEFT JOIN next_state ON next_state.interaction_id = turn.interaction_id "
    f"WHERE turn.session_id IN :names AND next_state.interaction_id IS NULL AND turn.kind != '{Kind.SIDE}' AND "
    "turn.choice = 0"
)


class NextStates:
    """`verifiers` are the tools whose results the operator trusts as verdicts."""

    def __init__(self, verifiers: Collection[str] = ()) -> None:
        self._verifiers = frozenset(verifiers)

    def tell(self, rows: WorkingSet, parent: LinkedTurn, turn: LinkedTurn, given: Prepared | None) -> None:
        """The request of `turn` continues `parent`: the messages after that reply came back after it.

        `given` is the record of `turn` if it is at hand.
        """
        digests = turn.message_digests[-turn.n_behind :]
        reply, repeated, messages = self._replied(rows, parent, turn, given)
        called = _called(reply)
        provenance = [self._whose(message, parent, called) for message in messages]
        signals = [
            s
            for message, whose in zip(messages, provenance, strict=True)
            if whose in _PRINTED
            for s in _read(message, whose)
        ]
        signals += _change(reply, repeated)
        # Only a user's own words become a hint. Beside a tool's result nobody can say whose words a hint repeats. What
        # a harness puts between (aider: the files' contents and an "Ok." to them) is no result, and the user's words
        # stay the user's.
        is_from_user = Provenance.USER in provenance and not set(provenance).intersection(_PRINTED)
        kind = NextStateKind.USER_REPLY if is_from_user else NextStateKind.TOOL_RESULT
        is_new = rows.note_next(
            parent,
            kind,
            turn.interaction_id,
            turn.started_at,
            digests,
            [whose.value for whose in provenance],
            [asdict(signal) for signal in signals],
        )
        if not is_new or parent.skip_reason is not None:
            return
        said: list[Feedback] = []
        if parent.has_feedback:
            said = [feedback_of(row) for row in rows_of(rows.session, FeedbackRow, parent.interaction_id)]
        if environment_fault(signals) is None and needs_judge(said, signals, kind):
            rows.ask_judge(parent)
        rows.settle(parent)

    @staticmethod
    def regenerated(rows: WorkingSet, earlier: LinkedTurn, turn: LinkedTurn) -> None:
        """The request of `turn` repeats that of `earlier`: another reply was wanted."""
        is_new = rows.note_next(earlier, NextStateKind.REGENERATED, turn.interaction_id, turn.started_at)
        if is_new and earlier.skip_reason is None:
            rows.settle(earlier)

    @staticmethod
    def _replied(
        rows: WorkingSet, parent: LinkedTurn, turn: LinkedTurn, given: Prepared | None
    ) -> tuple[Message, Message, Sequence[Message]]:
        """The reply of `parent` as it was, as the request of `turn` repeats it, and the messages after it."""
        if given is None:
            reply, repeated, *messages = rows.texts([parent.reply_digest, *turn.message_digests[-turn.n_behind - 1 :]])
            return reply, repeated, messages
        start = len(given.turn.messages) - turn.n_behind
        repeated, *messages = given.turn.messages[start - 1 :]
        if given.trace.hash_at(start) == parent.tail_hash:  # it was repeated without a change
            return repeated, repeated, messages
        return rows.texts([parent.reply_digest])[0], repeated, messages

    def _whose(self, message: Message, parent: LinkedTurn, called: Mapping[str, str]) -> Provenance:
        """The answer to a tool call is its result, even if a harness sends it as a user's message or marks it as
        one."""
        role = message.get("role")
        if role in _TOOLS:
            name, is_recorded = _tool_name(message, called)
            if is_recorded and name in self._verifiers:
                return Provenance.VERIFIER
            return Provenance.WEB if is_of_the_web(name) else Provenance.TOOL
        if role != "user":
            return Provenance.HARNESS
        if parent.finish_reason == "tool_calls" or harness_patterns.is_result(text_of(message)):
            return Provenance.TOOL
        return Provenance.USER


def is_of_the_web(tool: str) -> bool:
    """True if a part of the tool's name means the web. `curl` and `search_code` do not."""
    return any(part.lower() in _WEB for part in _NAME_PART.findall(tool))


def note_ended(session: Session, what: NextStateKind, session_ids: Sequence[str]) -> int:
    """Note that nobody answered the last replies of sessions that ended. Returns how many."""
    names = [row[0] for row in select_in(session, _ENDED, session_ids)]
    rows = [{"interaction_id": name, "kind": what, **_NOTHING, "created_at": time.time()} for name in names]
    if rows:
        session.connection().execute(insert(NextStateRow), rows)
    return len(rows)


def _change(reply: Message, repeated: Message) -> list[Signal]:
    """The share of a reply that somebody changed before going on."""
    if repeated.get("role") != "assistant" or linking.is_same(reply, repeated):
        return []
    return [Signal(SignalKind.EDIT, round(1.0 - linking.likeness(reply, repeated), 4), Provenance.USER)]


def _read(message: Message, whose: Provenance) -> list[Signal]:
    return signals_of(text_of(message), whose)


def _called(reply: Message) -> dict[str, str]:
    """The names of the tools that a reply calls, by the ids of the calls."""
    calls = reply.get("tool_calls")
    names: dict[str, str] = {}
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping) and isinstance(call.get("id"), str):
            names.setdefault(call["id"], str(function.get("name") or ""))
    return names


def _tool_name(message: Message, called: Mapping[str, str]) -> tuple[str, bool]:
    """The name of the tool behind the result `message`, and whether the recorded reply called it.

    The reply decides, not the message's own name field, which its client writes. Only a result without an id is found
    by that name.
    """
    answered, name = message.get("tool_call_id"), message.get("name")
    if isinstance(answered, str) and answered in called:
        return called[answered], True
    name = name if isinstance(name, str) else ""
    return name, not answered and name in called.values()


_PRINTED = (Provenance.VERIFIER, Provenance.TOOL, Provenance.WEB)
_NOTHING: Mapping[str, Any] = {"follower_id": None, "message_digests": [], "provenance": [], "signals": []}
