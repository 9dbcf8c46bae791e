"""The journal compared with the script: the linker's view of a harness's requests against the truth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select

from burnish.journal import Journal
from burnish.journal.tables import InteractionRow, NextStateRow
from burnish.journal.turns import from_bytes, messages_of
from burnish.records import LinkRule, Message, NextStateKind
from burnish.server.ingest.turn_kind import text_of
from burnish.testing import Outcome, Part, Truth, logprob_of

TALK = (Part.MAIN, Part.SUBAGENT)


@dataclass
class Verdict:
    """Counts for the table, and every difference between journal and truth."""

    n_turns: int = 0
    n_eligible: int = 0
    n_trainable: int = 0
    n_unwanted: int = 0
    n_sessions: int = 0
    n_sessions_right: int = 0
    routes: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


PRINTED = ("Observation:", "<returncode>", "I ran this command:")
"""The beginnings of a user's message that holds a tool's output, in the harnesses of this suite."""


@dataclass(frozen=True)
class Came:
    """The next state of one reply in the journal.

    `is_printed`: a user's message holds a tool's output.
    """

    kind: NextStateKind
    follower_id: str | None
    n_results: int
    is_printed: bool

    @classmethod
    def of(cls, row: NextStateRow, messages: Sequence[Message]) -> "Came":
        texts = [text_of(message) for message in messages if message.get("role") == "user"]
        n_results = sum(message.get("role") == "tool" for message in messages)
        return cls(NextStateKind(row.kind), row.follower_id, n_results, any(text.startswith(PRINTED) for text in texts))

    def fits(self, n_calls: int) -> bool:
        """True if all `n_calls` tool calls have results, and a user's message counts as a user's."""
        if self.is_printed and not self.n_results:
            return self.kind is NextStateKind.TOOL_RESULT
        return (self.kind is NextStateKind.TOOL_RESULT) == (n_calls > 0) and self.n_results == n_calls


class Trial:
    """One comparison."""

    def __init__(self, truths: Sequence[Truth], journal: Journal) -> None:
        self._truths = truths
        self._truth_of = {truth.request_id: truth for truth in truths}
        with journal.read() as session:
            self._rows = {(row.request_id, row.choice): row for row in session.scalars(select(InteractionRow))}
            self._came = {
                row.interaction_id: Came.of(row, messages_of(session, row.message_digests))
                for row in session.scalars(select(NextStateRow))
            }
            session.expunge_all()
        self._by_id = {row.interaction_id: row for row in self._rows.values()}
        self._unanswered: set[str] = set()
        self._verdict = Verdict(n_turns=len(self._rows), routes={row.route for row in self._rows.values()})

    def verdict(self) -> Verdict:
        self._check_records()
        self._check_sessions()
        self._check_parents()
        self._check_next_states()
        self._check_training()
        return self._verdict

    def _say(self, truth: Truth, text: str) -> None:
        name = truth.side or f"step {truth.step}"
        self._verdict.problems.append(f"{truth.run or '-'} {name} (request {truth.ordinal}, {truth.part}): {text}")

    def _rows_of(self, truth: Truth) -> list[InteractionRow]:
        return [row for (request_id, _), row in sorted(self._rows.items()) if request_id == truth.request_id]

    def _check_records(self) -> None:
        """Every answer is recorded as sampled, and refused requests are not recorded."""
        for truth in self._truths:
            rows = self._rows_of(truth)
            if truth.outcome is Outcome.REFUSED and rows:
                self._say(truth, "recorded, though the engine refused it")
            if truth.outcome is Outcome.OPEN:
                self._say(truth, "still open")
            if truth.outcome is not Outcome.ANSWERED:
                continue
            if len(rows) != len(truth.token_ids):
                self._say(truth, f"{len(rows)} rows for {len(truth.token_ids)} choices")
            for row, token_ids in zip(rows, truth.token_ids, strict=False):
                self._check_tokens(truth, row, token_ids)
        for row in self._rows.values():
            if row.request_id not in self._truth_of:
                self._verdict.problems.append(f"a row that no request made: {row.interaction_id}")

    def _check_tokens(self, truth: Truth, row: InteractionRow, token_ids: list[int]) -> None:
        if from_bytes("i", row.token_ids).tolist() != token_ids:
            self._say(truth, "the token ids differ from those sampled")
        logprobs = from_bytes("f", row.logprobs)
        expected = [logprob_of(truth.model, token) for token in token_ids]
        if len(logprobs) != len(expected) or any(
            abs(got - want) > 1e-5 for got, want in zip(logprobs, expected, strict=False)
        ):
            self._say(truth, "the log-probs differ from those sampled")
        if not (row.prompt_parts or row.prompt_rest) or row.quarantine or row.is_aborted:
            self._say(truth, f"not whole: quarantine {row.quarantine!r}, aborted {row.is_aborted}")
        family = {r.session_id for t in self._truths if t.run == truth.family for r in self._rows_of(t)}
        is_apart = truth.part is Part.SUBAGENT and row.kind == Part.MAIN and row.session_id not in family
        if row.kind != truth.part and not is_apart:  # a sub-agent with a conversation of its own is a main agent to us
            self._say(truth, f"taken for {row.kind} ({row.kind_reason})")

    def _check_sessions(self) -> None:
        """A run's turns share one session, which holds no other run's turns except its own sub-agents'."""
        sessions: dict[str, set[str]] = {}
        owners: dict[str, set[str]] = {}
        continued = {truth.continues for truth in self._truths}
        for truth in self._truths:
            for row in self._rows_of(truth):
                if truth.run and truth.part in TALK and not self._is_dropped_opening(truth, row, continued):
                    sessions.setdefault(truth.run, set()).add(row.session_id)
                    owners.setdefault(row.session_id, set()).add(_family(truth.run, self._truths))
        for run, ids in sessions.items():
            truth = next(truth for truth in self._truths if truth.run == run and truth.part in TALK)
            others = {owner for session_id in ids for owner in owners[session_id]} - {_family(run, self._truths)}
            self._verdict.n_sessions += 1
            if not others and (len(ids) == 1 or truth.collides):
                self._verdict.n_sessions_right += 1
            else:
                self._say(truth, f"its turns are in {len(ids)} sessions, shared with {sorted(others) or 'nobody'}")

    def _is_dropped_opening(self, truth: Truth, row: InteractionRow, continued: set[tuple[str, int] | None]) -> bool:
        """An opening that was asked again and never continued.

        It looks like another conversation with the same opening.
        """
        is_alone = truth.continues is None and (row.request_id, row.choice) not in continued
        return is_alone and any(t.run == truth.run and t.step == 1 and t.attempt > truth.attempt for t in self._truths)

    def _check_parents(self) -> None:
        for truth in self._truths:
            if truth.part not in TALK or truth.outcome is not Outcome.ANSWERED:
                continue
            for row in self._rows_of(truth)[:1]:
                parent = self._by_id.get(row.parent_id or "")
                found = (parent.request_id, parent.choice) if parent else None
                if found is None and (truth.is_rewritten or _is_left_open(truth, row)):
                    continue
                if found != truth.continues:
                    self._say(
                        truth,
                        f"continues {self._name(truth.continues)}, linked to {self._name(found)} by {row.link_rule}",
                    )

    def _check_next_states(self) -> None:
        """The next state of a reply is the whole continuation of its conversation, and no side call."""
        followers: dict[tuple[str, int], list[Truth]] = {}
        for truth in self._truths:
            if truth.continues and truth.part in TALK and self._rows_of(truth):
                followers.setdefault(truth.continues, []).append(truth)
        for (request_id, choice), row in self._rows.items():
            truth, came = self._truth_of.get(request_id), self._came.get(row.interaction_id)
            behind = followers.get((request_id, choice), [])
            if truth is None or truth.outcome is not Outcome.ANSWERED:
                continue
            if came is None:
                is_known = [
                    o for o in behind if not o.is_rewritten and not any(_is_left_open(o, r) for r in self._rows_of(o))
                ]
                if is_known:
                    self._unanswered.add(row.interaction_id)
                    self._say(truth, "what came back is not known")
                continue
            follower = self._by_id.get(came.follower_id or "")
            if follower is None or follower.request_id not in {other.request_id for other in behind}:
                self._say(truth, "something that did not follow counts as what came back")
                continue
            n_calls = truth.n_calls[choice]
            if not came.fits(n_calls):
                self._say(truth, f"{n_calls} tool calls, {came.n_results} results recorded as {came.kind}")

    def _check_training(self) -> None:
        for (request_id, _), row in self._rows.items():
            truth = self._truth_of.get(request_id)
            if truth is None:
                continue
            is_eligible = truth.part in TALK and truth.outcome is Outcome.ANSWERED and not _is_left_open(truth, row)
            self._verdict.n_eligible += is_eligible
            self._verdict.n_trainable += (
                is_eligible and row.skip_reason is None and row.interaction_id not in self._unanswered
            )
            if is_eligible and row.skip_reason is not None:
                self._say(truth, f"not trained: {row.skip_reason}")
            if not is_eligible and row.skip_reason is None:
                self._verdict.n_unwanted += 1
                self._say(truth, "would be trained")

    def _name(self, reply: tuple[str, int] | None) -> str:
        truth = self._truth_of.get(reply[0]) if reply else None
        return f"{truth.run} step {truth.step} (request {truth.ordinal})" if truth else "nothing"


def _is_left_open(truth: Truth, row: InteractionRow) -> bool:
    """Requests that look alike may be served and never trained. The linker must not guess."""
    return truth.collides and row.link_rule == LinkRule.AMBIGUOUS


def _family(run: str, truths: Sequence[Truth]) -> str:
    """The run that a sub-agent's run belongs to. Any other run belongs to itself."""
    return next((truth.family for truth in truths if truth.run == run and truth.family), run)


def compare(truths: Sequence[Truth], journal: Journal) -> Verdict:
    """The verdict on one journal with these requests."""
    return Trial(truths, journal).verdict()


def labelled(truths: Sequence[Truth], sessions: Mapping[str, Sequence[str]]) -> None:
    """Tell equal-looking runs apart by their client: `sessions` has the request ids of each, in order."""
    by_id = {truth.request_id: truth for truth in truths}
    for label, request_ids in sessions.items():
        before: tuple[str, int] | None = None
        for request_id in request_ids:
            by_id[request_id].run, by_id[request_id].continues = label, before
            before = (request_id, 0)
