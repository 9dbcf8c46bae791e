"""The working set of some turns: the rows that filing them reads and changes, for one transaction.

A few queries load what the turns will ask for. They are linked and typed in memory, and a few statements store what is
new. Whatever was not loaded is asked for when it is needed, so loading is a matter of speed only. Nothing outlives the
transaction: the next working set comes from the journal again.
"""

import json
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlmodel import Session

from burnish.journal import blobs, linked_turns
from burnish.journal.bulk import SKIP, execute_in, insert_many, select_in, update_many
from burnish.journal.evidence import settle
from burnish.journal.linked_turns import MOST_ALIKE, Alike, Asked, LinkedTurn
from burnish.journal.tables import InteractionRow, JudgeJob, NextStateRow
from burnish.journal.turns import blobs_of, judge_subject
from burnish.records import Interaction, NextStateKind
from burnish.rewards import NEXT_STATE
from burnish.server.ingest import opened_sessions
from burnish.server.ingest.linking import Candidate
from burnish.server.ingest.opened_sessions import Opened
from burnish.server.ingest.prepared import Prepared, Stored, json_of, row_of
from burnish.server.ingest.turn_kind import Conversation, Kind

RETRY_WINDOW = 900.0
"""Seconds back in which a request with `x-stainless-retry-count` looks for the try that it repeats."""
ANSWERED = (NextStateKind.USER_REPLY, NextStateKind.TOOL_RESULT)


class _New(NamedTuple):
    """A turn that is not stored yet."""

    turn: LinkedTurn
    given: Prepared
    rule: str


class WorkingSet:
    """One per transaction or part of one."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._turns: dict[str, LinkedTurn] = {}
        self._filed: dict[str, bool] = {}
        self._alike: dict[str, dict[tuple[str, str], list[Alike]]] = {place: {} for place in linked_turns.PLACES}
        self._kept_out: dict[str, dict[tuple[str, str], Alike | None]] = {
            place: {} for place in linked_turns.KEPT_OUT_PLACES
        }
        self._tries: dict[tuple[str, str], list[LinkedTurn]] = {}
        self._children: dict[str, list[LinkedTurn]] = defaultdict(list)
        self._own: dict[str, dict[str, list[LinkedTurn]]] = {place: defaultdict(list) for place in linked_turns.PLACES}
        self._known: dict[str, Conversation | None] = {}
        self._closed: set[str] = set()
        self._there: set[str] = set()
        self._awaited: dict[str, bool] = {}
        self._new: list[_New] = []
        self._blobs: dict[str, str] = {}
        self._parts: dict[str, bytes] = {}
        self._sessions: dict[str, Opened] = {}
        self._next_states: dict[str, Mapping[str, Any]] = {}
        self._weaker: list[str] = []
        self._corrected: dict[str, LinkedTurn] = {}
        self._asked: dict[str, None] = {}
        self._unsettled: dict[str, None] = {}

    def expect(self, turns: Sequence[Prepared]) -> None:
        """Load what filing `turns` will ask for."""
        new = [given for given in turns if given.turn.interaction_id not in self._filed]
        self._load_filed(given.turn.interaction_id for given in new)
        new = [given for given in new if not self._filed[given.turn.interaction_id]]
        self._load_alike(self._first_places(new))
        self._load_tries([given for given in new if self._known_tries(given) is None])
        unlinked = self._unlinked(new)
        self._load_alike(self._further_places(unlinked))
        self._load_kept_out(self._kept_out_places(unlinked))
        self._load_known({given.session_id for given in new if given.session_id is not None})
        self._load_awaited(new)

    # Reading

    def is_filed(self, interaction_id: str) -> bool:
        """True if the journal has this reply, or will have it."""
        if interaction_id not in self._filed:
            self._load_filed([interaction_id])
        return self._filed[interaction_id]

    def turn(self, interaction_id: str) -> LinkedTurn | None:
        return self.turns([interaction_id]).get(interaction_id)

    def turns(self, interaction_ids: Collection[str]) -> Mapping[str, LinkedTurn]:
        """The recorded turns among `interaction_ids`."""
        if lacking := [name for name in interaction_ids if name not in self._turns]:
            for turn in linked_turns.turns_of(self.session, lacking):
                self._same(turn)
        return {name: self._turns[name] for name in interaction_ids if name in self._turns}

    def alike(self, place: str, value: str, asking: Interaction | LinkedTurn) -> list[tuple[LinkedTurn, bool]]:
        """The latest turns of other requests with the hash `value` at `place`, latest first.

        The flag: a third request has continued the turn already. Other choices of the same request are no followers.
        """
        request_id = asking.request_id
        if (value, request_id) not in self._alike[place]:
            self._load_alike({place: [Asked(value, request_id, asking.ended_at)]})
        found = [(each.turn, each.has_follower) for each in self._alike[place][value, request_id]]
        own = [turn for turn in self._own[place].get(value, ()) if turn.request_id != request_id]
        if own:
            found += [(turn, False) for turn in own]
            found.sort(key=lambda each: -each[0].ended_at)
        return [(turn, is_followed or self._goes_on(turn, request_id)) for turn, is_followed in found[:MOST_ALIKE]]

    def candidates(self, place: str, value: str, asking: Interaction | LinkedTurn) -> list[Candidate]:
        """The same as candidates for a link."""
        return self._as_candidates(self.alike(place, value, asking))

    def kept_out(self, place: str, values: Sequence[str], asking: Interaction) -> Mapping[str, Candidate]:
        """For each of `values` the latest turn of another request that is kept out of training, however old it is."""
        self._load_kept_out({place: [Asked(value, asking.request_id, asking.ended_at) for value in values]})
        found = {value: self._kept_out[place][value, asking.request_id] for value in values}
        latest = {value: each for value, each in found.items() if each is not None}
        return dict(zip(latest, self._as_candidates(latest.values()), strict=True))

    def tries(self, given: Prepared) -> list[LinkedTurn]:
        """The other tries of a request that ended within the retry window, earliest first."""
        turn, value = given.turn, given.trace.request
        found = self._known_tries(given)
        if found is None:
            self._load_tries([given])
            found = self._tries[value, turn.request_id]
        if own := self._own["request_hash"].get(value):
            found = found + [each for each in own if each.request_id != turn.request_id and each.retry != turn.retry]
        since = turn.started_at - RETRY_WINDOW
        return sorted((each for each in found if each.ended_at > since), key=lambda each: each.ended_at)

    def followed(self, turns: Iterable[LinkedTurn]) -> set[str]:
        """The ids of those of `turns` that any turn continues."""
        names = {turn.interaction_id for turn in turns}
        here = {name for name in names if name in self._children}
        return here | linked_turns.followed(self.session, sorted(names - here))

    def known(self, session_id: str) -> Conversation | None:
        """The session so far. None if it is new."""
        if session_id not in self._known:
            self._load_known([session_id])
        return self._known[session_id]

    def texts(self, digests: Sequence[str]) -> list[Any]:
        """The messages with `digests`."""
        here = {digest: json.loads(self._blobs[digest]) for digest in digests if digest in self._blobs}
        found = here | blobs_of(self.session, [digest for digest in digests if digest not in here])
        return [found[digest] for digest in digests]

    def is_awaited(self, turn: LinkedTurn, quoted_session: str | None) -> bool:
        """True if feedback may wait for the turn."""
        names = _names(turn.interaction_id, turn.request_id, turn.session_id, quoted_session)
        if lacking := [name for name in names if name not in self._awaited]:
            self._load_names(lacking)
        return any(self._awaited[name] for name in names)

    # Changing

    def add(self, turn: LinkedTurn, given: Prepared, stored: Stored, rule: str) -> None:
        """A new turn, its texts, the parts of its prompt, and its places."""
        self._new.append(_New(turn, given, rule))
        self._turns[turn.interaction_id] = turn
        self._filed[turn.interaction_id] = True
        trace = given.trace
        for place, value in zip(
            linked_turns.PLACES, (trace.tail, trace.suffix, trace.words, trace.request), strict=True
        ):
            self._own[place][value].append(turn)
        if turn.parent_id is not None:
            self._children[turn.parent_id].append(turn)
        self._blobs |= stored.new_texts
        self._parts |= stored.new_parts

    def open(self, opened: Opened, *, is_main: bool, has_parent: bool) -> None:
        """Open the session of a new turn, or go on with it."""
        there = self._sessions.setdefault(opened.session_id, opened)
        there.last_at = opened.last_at
        if opened.closed_at is not None:
            there.closed_at = opened.closed_at
            self._closed.add(opened.session_id)
        if is_main and opened.has_tools:
            there.gets_tools = True
            if not has_parent:
                there.gets_head, there.new_head = True, opened.head
        known = self._known.get(opened.session_id)
        if known is None:
            self._known[opened.session_id] = Conversation(opened.has_tools, opened.head)
        elif there.gets_tools:
            self._known[opened.session_id] = Conversation(True, there.new_head if there.gets_head else known.head)

    def correct(self, turn: LinkedTurn, kind: Kind, reason: str, skip_reason: str | None) -> None:
        """A later turn has shown the kind of `turn`."""
        turn.kind, turn.kind_reason, turn.skip_reason = kind.value, reason, skip_reason
        self._corrected[turn.interaction_id] = turn
        if turn.parent_id is not None and turn not in self._children[turn.parent_id]:
            self._children[turn.parent_id].append(turn)

    def skip(self, turn: LinkedTurn, reason: str) -> None:
        turn.skip_reason = reason
        self._corrected[turn.interaction_id] = turn

    def note_next(
        self,
        turn: LinkedTurn,
        kind: NextStateKind,
        follower_id: str | None,
        created_at: float,
        digests: Sequence[str] = (),
        provenance: Sequence[str] = (),
        signals: Sequence[Mapping[str, Any]] = (),
    ) -> bool:
        """Note what came after `turn`. False if something as strong was noted before."""
        if turn.next_kind is not None:
            if kind not in ANSWERED or turn.next_kind in ANSWERED:
                return False
            if self._next_states.pop(turn.interaction_id, None) is None:
                self._weaker.append(turn.interaction_id)
        turn.next_kind = kind.value
        self._next_states[turn.interaction_id] = {
            "interaction_id": turn.interaction_id,
            "kind": kind.value,
            "follower_id": follower_id,
            "message_digests": json_of(digests),
            "provenance": json_of(provenance),
            "signals": json.dumps(signals),
            "created_at": created_at,
        }
        return True

    def ask_judge(self, turn: LinkedTurn) -> None:
        """Queue the judging of what came after `turn`. Until then the turn is not ready."""
        self._asked[turn.interaction_id] = None

    def settle(self, turn: LinkedTurn) -> None:
        """Find out whether the turn's reward is known, once everything is stored."""
        self._unsettled[turn.interaction_id] = None

    def store(self) -> None:
        """Store all that is new. The working set is used up."""
        session = self.session
        blobs.store_many(session, self._blobs)
        blobs.store_parts(session, self._parts)
        insert_many(session, InteractionRow, [row_of(*new) for new in self._new])
        self._store_sessions()
        names = {new.turn.interaction_id for new in self._new}
        before = [turn for name, turn in self._corrected.items() if name not in names]
        update_many(session, _CORRECT, _STATE, [{name: getattr(turn, name) for name in _STATE} for turn in before])
        if self._weaker:
            execute_in(session, _YIELD, self._weaker)
        insert_many(session, NextStateRow, list(self._next_states.values()), SKIP)
        self._store_jobs()
        if unready := [name for name in self._asked if name not in names]:
            execute_in(session, _UNREADY, unready)
        if unsettled := [name for name in self._unsettled if name not in self._asked]:
            settle(session, *unsettled)

    # Parts

    def _as_candidates(self, turns: Iterable[tuple[LinkedTurn, bool]]) -> list[Candidate]:
        return [
            Candidate(
                turn.interaction_id,
                turn.request_id,
                turn.session_id,
                turn.choice,
                is_followed,
                turn.session_id in self._closed,
                turn.ended_at,
            )
            for turn, is_followed in turns
        ]

    def _goes_on(self, turn: LinkedTurn, request_id: str) -> bool:
        children = self._children.get(turn.interaction_id, ())
        return any(child.request_id != request_id and child.kind != Kind.SIDE for child in children)

    def _load_filed(self, names: Iterable[str]) -> None:
        asked = list(dict.fromkeys(names))
        found = linked_turns.filed(self.session, asked)
        self._filed |= {name: name in found for name in asked}

    def _known_tries(self, given: Prepared) -> list[LinkedTurn] | None:
        """The recorded tries. None if neither they nor all turns with that request were loaded."""
        pair = given.trace.request, given.turn.request_id
        if pair in self._tries:
            return self._tries[pair]
        same = self._alike["request_hash"].get(pair)
        if same is None or len(same) == MOST_ALIKE:  # there may be more
            return None
        return [each.turn for each in same if each.turn.retry != given.turn.retry]

    def _load_tries(self, turns: Sequence[Prepared]) -> None:
        asked = [
            (given.trace.request, turn.request_id, turn.ended_at, turn.retry, turn.started_at - RETRY_WINDOW)
            for given in turns
            for turn in (given.turn,)
        ]
        found = linked_turns.tries(self.session, asked)
        for value, request_id, *_ in asked:
            self._tries[value, request_id] = [self._same(turn) for turn in found.get((value, request_id), ())]

    def _first_places(self, turns: Sequence[Prepared]) -> Mapping[str, list[Asked]]:
        """Where most turns are linked: at the last reply that they repeat. And, if it was asked before, the request."""
        tails = [_asked(place[0][1], given) for given in turns if (place := given.trace.continuations())]
        requests = [
            _asked(given.trace.request, given)
            for given in turns
            if given.turn.quoted_session is not None or given.trace.continuations()
        ]
        return {"tail_hash": tails, "request_hash": requests}

    def _unlinked(self, turns: Sequence[Prepared]) -> list[Prepared]:
        """Turns that repeat a reply and are not linked there, neither to a recorded turn nor to one of `turns`."""
        here = {given.trace.tail for given in turns} | self._own["tail_hash"].keys()
        return [
            given
            for given in turns
            if (places := given.trace.continuations())
            and places[0][1] not in here
            and not self._alike["tail_hash"].get((places[0][1], given.turn.request_id))
        ]

    def _further_places(self, turns: Sequence[Prepared]) -> Mapping[str, list[Asked]]:
        """The other places at which turns may be linked."""
        found: dict[str, list[Asked]] = defaultdict(list)
        for given in turns:
            found["tail_hash"] += [_asked(value, given) for _, value in given.trace.continuations()[1:]]
            if (changed := given.trace.changed_continuation()) is not None:
                found["suffix_hash"].append(_asked(changed[1], given))
            found["words_hash"] += [_asked(words, given) for _, words in given.trace.repeated_words()]
            if (edited := given.trace.edited_continuation()) is not None:
                found["request_hash"].append(_asked(edited[1], given))
        return found

    def _kept_out_places(self, turns: Sequence[Prepared]) -> Mapping[str, list[Asked]]:
        """The places at which they may repeat a turn that is kept out of training."""
        changed = [(given.trace.changed_continuation(), given) for given in turns]
        return {
            "tail_hash": [_asked(value, given) for given in turns for _, value in given.trace.continuations()],
            "suffix_hash": [_asked(place[1], given) for place, given in changed if place is not None],
        }

    def _load_kept_out(self, places: Mapping[str, Sequence[Asked]]) -> None:
        for place, asked in places.items():
            there = self._kept_out[place]
            lacking = [each for each in asked if (each.value, each.request_id) not in there]
            for pair, found in linked_turns.alike(self.session, place, lacking, is_kept_out=True).items():
                there[pair] = Alike(self._same(found[0].turn), found[0].has_follower) if found else None

    def _load_alike(self, places: Mapping[str, Sequence[Asked]]) -> None:
        for place, asked in places.items():
            there = self._alike[place]
            lacking = [each for each in asked if (each.value, each.request_id) not in there]
            for pair, found in linked_turns.alike(self.session, place, lacking).items():
                there[pair] = [Alike(self._same(each.turn), each.has_follower) for each in found]

    def _same(self, turn: LinkedTurn) -> LinkedTurn:
        """The one object for a turn."""
        if turn.is_closed is not None:
            self._there.add(turn.session_id)
            if turn.is_closed:
                self._closed.add(turn.session_id)
        return self._turns.setdefault(turn.interaction_id, turn)

    def _load_known(self, session_ids: Collection[str]) -> None:
        asked = [name for name in session_ids if name not in self._known]
        self._known |= dict.fromkeys(asked)
        for name, has_tools, head, closed_at in select_in(self.session, _KNOWN, asked):
            self._known[name] = Conversation(bool(has_tools), head)
            self._there.add(name)
            if closed_at is not None:
                self._closed.add(name)

    def _load_awaited(self, turns: Sequence[Prepared]) -> None:
        found = {turn.session_id for turn in self._turns.values()}
        for given in turns:
            turn = given.turn
            session_id = given.session_id or f"s-{turn.request_id}"
            found |= _names(turn.interaction_id, turn.request_id, session_id, turn.quoted_session)
        self._load_names(found)

    def _load_names(self, names: Collection[str]) -> None:
        asked = [name for name in names if name not in self._awaited]
        found = {row[0] for row in select_in(self.session, _AWAITED, asked)}
        self._awaited |= {name: name in found for name in asked}

    def _store_sessions(self) -> None:
        opened_sessions.store(self.session, list(self._sessions.values()), self._there)

    def _store_jobs(self) -> None:
        now = time.time()
        jobs = [
            {
                "subject": judge_subject(name, NEXT_STATE),
                "payload": json_of({"interaction_id": name, "origin": NEXT_STATE}),
                "state": "queued",
                "attempts": 0,
                "run_after": 0.0,
                "created_at": now,
            }
            for name in self._asked
        ]
        insert_many(self.session, JudgeJob, jobs, SKIP)


def _asked(value: str, given: Prepared) -> Asked:
    return Asked(value, given.turn.request_id, given.turn.ended_at)


def _names(*names: str | None) -> set[str]:
    """The names by which feedback may ask for a turn."""
    return {name for name in names if name is not None}


_STATE = {"interaction_id": "text", "kind": "text", "kind_reason": "text", "skip_reason": "text"}
_KNOWN = "SELECT session_id, has_tools, head, closed_at FROM session WHERE session_id IN :names"
_AWAITED = (
    "SELECT target FROM feedback WHERE target IN :names "
    "AND interaction_id IS NULL AND expired_at IS NULL AND is_deleted = FALSE"
)
_CORRECT = (
    "UPDATE interaction SET kind = :kind, kind_reason = :kind_reason, skip_reason = :skip_reason "
    "WHERE interaction.interaction_id = :interaction_id"
)
_YIELD = (
    "DELETE FROM next_state WHERE interaction_id IN :names "
    f"AND kind NOT IN ({', '.join(repr(kind.value) for kind in ANSWERED)})"
)
_UNREADY = "UPDATE interaction SET is_ready = FALSE WHERE interaction_id IN :names AND is_ready"
