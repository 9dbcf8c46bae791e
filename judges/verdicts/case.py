"""The judge's case on one turn, from the journal. Several turns are read at once, because they share messages.

If a turn contains possible prompt injection, the case holds a second question without it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import or_, select
from sqlmodel import Session, col

from burnish.journal.jobs import Leased
from burnish.journal.tables import FeedbackRow, InteractionRow, NextStateRow
from burnish.journal.turns import blobs_of
from burnish.judges import prefilter
from burnish.judges.injection import scan
from burnish.judges.verdicts import provenance
from burnish.judges.verdicts.hint_rules import NOBODYS, USERS, Grounds
from burnish.judges.verdicts.question import LEFT_OUT, Question
from burnish.judges.verdicts.verdict import PROMPT, as_text, question
from burnish.records import FeedbackSource, Message, NextStateKind
from burnish.rewards import FEEDBACK


@dataclass(frozen=True, slots=True)
class Case:
    """The chat messages to send. `rule` settles the turn without a model.

    `redacted` asks the same without possible prompt injection, None if there is none. `is_hollow`: nothing of the
    reaction is left in it. Both questions end their system message with `rubric`. `grounds` are the sources of a hint,
    `question` is the source of the messages.
    """

    messages: list[dict[str, str]]
    rule: str | None = None
    grounds: Grounds = NOBODYS
    redacted: list[dict[str, str]] | None = None
    rubric: str = ""
    question: Question | None = None
    is_hollow: bool = False

    @property
    def n_readings(self) -> int:
        """How often a judge is asked for its votes: twice with possible prompt injection, never if a rule settles the
        turn.
        """
        return 0 if self.rule is not None else 1 if self.redacted is None else 2

    def grounds_of(self, hint: str) -> Grounds:
        """The sources of this hint. Whether its words are the user's own depends on the hint."""
        return replace(
            self.grounds, is_grounded=self.question is not None and provenance.is_users_own(hint, self.question)
        )


def read(
    session: Session, leased: Sequence[Leased], rubrics: Mapping[str, str] | None = None
) -> list[Case | Exception]:
    """A case for each job, or the error: one malformed turn must not stop the others.

    `rubrics` maps an agent's name, or a route for agents without their own, to the additional instructions for the
    judge.
    """
    names = {str(job.payload["interaction_id"]) for job in leased}
    turns = {
        row.interaction_id: row
        for row in session.connection().execute(
            select(
                col(InteractionRow.interaction_id),
                col(InteractionRow.message_digests),
                col(InteractionRow.reply_digest),
                col(InteractionRow.agent),
                col(InteractionRow.route),
            ).where(col(InteractionRow.interaction_id).in_(names))
        )
    }
    next_states = {
        row.interaction_id: row
        for row in session.connection().execute(
            select(col(NextStateRow.interaction_id), col(NextStateRow.kind), col(NextStateRow.message_digests)).where(
                col(NextStateRow.interaction_id).in_(names)
            )
        )
    }
    digests = {digest for row in turns.values() for digest in (*row.message_digests, row.reply_digest)}
    digests |= {digest for row in next_states.values() for digest in row.message_digests}
    blobs = blobs_of(session, digests)
    gold = _gold(session, names)
    cases: list[Case | Exception] = []
    for job in leased:
        name, origin = str(job.payload["interaction_id"]), str(job.payload["origin"])
        try:
            case = _case(session, name, origin, turns[name], next_states.get(name), blobs, rubrics or {})
            cases.append(replace(case, grounds=replace(case.grounds, gold=gold.get(name, ()))))
        except Exception as error:
            cases.append(LookupError(f"the journal has no turn {name!r}") if name not in turns else error)
    return cases


def ask(asked: Question, grounds: Grounds = USERS, rubric: str = "") -> Case:
    """The case for `asked`, with a second question without possible prompt injection."""
    messages = asked.messages(PROMPT, rubric=rubric)
    scanned = scan.of_question(asked)
    if not scanned.spans:
        return Case(messages, grounds=grounds, rubric=rubric, question=asked)
    left = scan.redacted(asked, scanned)
    is_hollow = not any(quoted.text.replace(LEFT_OUT, "").strip(" \t\n.,;:!?\"'") for quoted in left.came_back)
    redacted, found = left.messages(PROMPT, rubric=rubric), replace(grounds, findings=scanned.findings)
    return Case(messages, None, found, redacted, rubric, asked, is_hollow)


def _case(
    session: Session,
    name: str,
    origin: str,
    turn: Any,
    next_state: Any,
    blobs: Mapping[str, Message],
    rubrics: Mapping[str, str],
) -> Case:
    """If a user has commented on a reply, no rule applies."""
    conversation = [blobs[digest] for digest in turn.message_digests]
    message = blobs[turn.reply_digest]
    reply = as_text(message)
    rubric = rubrics.get(turn.agent) or rubrics.get(turn.route, "")
    if origin == FEEDBACK:
        return ask(question(conversation, reply, _feedback_text(session, name), "feedback"), USERS, rubric)
    if (rule := prefilter.reason(conversation, message)) is not None:
        return Case([], rule)
    if next_state is None:
        raise LookupError(f"the turn {name!r} has no next state to judge")
    came_back = [blobs[digest] for digest in next_state.message_digests]
    is_users = next_state.kind == NextStateKind.USER_REPLY
    asked = question(conversation, reply, came_back, "user" if is_users else "tool")
    return ask(asked, USERS if is_users else NOBODYS, rubric)


def _gold(session: Session, names: Collection[str]) -> dict[str, list[str]]:
    """The right answers that people gave to these turns."""
    query = select(col(FeedbackRow.interaction_id), col(FeedbackRow.correction), col(FeedbackRow.demonstration)).where(
        col(FeedbackRow.interaction_id).in_(list(names)),
        or_(col(FeedbackRow.correction) != "", col(FeedbackRow.demonstration) != ""),
    )
    found: dict[str, list[str]] = {}
    for name, correction, demonstration in session.connection().execute(query):
        if name is not None:
            found.setdefault(name, []).extend(text for text in (correction, demonstration) if text)
    return found


def _feedback_text(session: Session, interaction_id: str) -> str:
    """The latest comment of a user, with its rating. Feedback from the harness never reaches the judge."""
    has_words = or_(col(FeedbackRow.comment) != "", col(FeedbackRow.correction) != "")
    words = (
        col(FeedbackRow.interaction_id) == interaction_id,
        has_words,
        col(FeedbackRow.source) == FeedbackSource.USER,
        ~col(FeedbackRow.is_deleted),
    )
    latest = session.scalars(select(FeedbackRow).where(*words).order_by(col(FeedbackRow.created_at).desc())).first()
    if latest is None:
        raise LookupError(f"no user has commented on {interaction_id}")
    lines = []
    if latest.rating is not None:
        lines.append(f"rating: {'good' if latest.rating > 0 else 'bad' if latest.rating < 0 else 'neutral'}")
    if latest.comment:
        lines.append(f"comment: {latest.comment}")
    if latest.correction:
        lines.append(f"comment: {latest.correction}")
    return "\n".join(lines)
