"""The judge's case on one turn, from the journal. Several turns are read at once, because they share messages.

Most cases ask a model. A case may instead be settled by a rule or by the user's own words, or need no verdict any more,
because a user or a verifier has spoken since it was queued. If a turn contains possible prompt injection, the case
holds a second question without it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import inspect, select
from sqlmodel import Session, col

from burnish.journal.jobs import Leased
from burnish.journal.tables import FeedbackRow, InteractionRow, NextStateRow
from burnish.journal.turns import blobs_of, feedback_of, signal_of
from burnish.judges import prefilter
from burnish.judges.injection import scan
from burnish.judges.verdicts import provenance, words
from burnish.judges.verdicts.hint_rules import NOBODYS, USERS, Grounds
from burnish.judges.verdicts.question import LEFT_OUT, Question
from burnish.judges.verdicts.verdict import PROMPT, as_text, question
from burnish.records import Feedback, Judgement, Message, NextStateKind
from burnish.rewards import FEEDBACK, needs_judge, words_of


@dataclass(frozen=True, slots=True)
class Case:
    """The chat messages to send. Without a model, `rule` settles the turn, or `words` is its whole judgement, or
    `is_needless`: no verdict is needed.

    `redacted` asks the same without possible prompt injection, None if there is none. `is_hollow`: nothing of the
    reaction is left in it. Both questions end their system message with `rubric`. `grounds` are the sources of a hint,
    `question` is the source of the messages, `agent` gave the reply.
    """

    messages: list[dict[str, str]]
    rule: str | None = None
    grounds: Grounds = NOBODYS
    redacted: list[dict[str, str]] | None = None
    rubric: str = ""
    question: Question | None = None
    is_hollow: bool = False
    words: Judgement | None = None
    is_needless: bool = False
    agent: str = ""

    @property
    def n_readings(self) -> int:
        """How often a judge is asked for its votes: twice with possible prompt injection, never if no model is
        needed.
        """
        return 0 if not self.messages else 1 if self.redacted is None else 2

    def grounds_of(self, hint: str) -> Grounds:
        """The sources of this hint. Whether its words are the user's own depends on the hint."""
        return replace(
            self.grounds, is_grounded=self.question is not None and provenance.is_users_own(hint, self.question)
        )


def read(
    session: Session, leased: Sequence[Leased], rubrics: Mapping[str, str] | None = None, *, spares: bool = True
) -> list[Case | Exception]:
    """A case for each job, or the error: one malformed turn must not stop the others.

    `rubrics` maps an agent's name, or a route for agents without their own, to the additional instructions for the
    judge. With `spares`, a turn that needs no verdict is needless, else its question is asked all the same.
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
            select(
                col(NextStateRow.interaction_id),
                col(NextStateRow.kind),
                col(NextStateRow.message_digests),
                col(NextStateRow.signals),
            ).where(col(NextStateRow.interaction_id).in_(names))
        )
    }
    digests = {digest for row in turns.values() for digest in (*row.message_digests, row.reply_digest)}
    digests |= {digest for row in next_states.values() for digest in row.message_digests}
    blobs = blobs_of(session, digests)
    feedback = _feedback(session, names)
    cases: list[Case | Exception] = []
    for job in leased:
        name, origin = str(job.payload["interaction_id"]), str(job.payload["origin"])
        said = feedback.get(name, ())
        try:
            if origin == FEEDBACK:
                cases.append(_words(name, said))
            elif spares and _is_needless(said, next_states.get(name)):
                cases.append(NEEDLESS)
            else:
                case = _case(name, turns[name], next_states.get(name), blobs, rubrics or {})
                grounds = replace(case.grounds, gold=_gold(said))
                cases.append(replace(case, grounds=grounds, agent=turns[name].agent))
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


def _case(name: str, turn: Any, next_state: Any, blobs: Mapping[str, Message], rubrics: Mapping[str, str]) -> Case:
    conversation = [blobs[digest] for digest in turn.message_digests]
    message = blobs[turn.reply_digest]
    if (rule := prefilter.reason(conversation, message)) is not None:
        return Case([], rule)
    if next_state is None:
        raise LookupError(f"the turn {name!r} has no next state to judge")
    came_back = [blobs[digest] for digest in next_state.message_digests]
    is_users = next_state.kind == NextStateKind.USER_REPLY
    asked = question(conversation, as_text(message), came_back, "user" if is_users else "tool")
    rubric = rubrics.get(turn.agent) or rubrics.get(turn.route, "")
    return ask(asked, USERS if is_users else NOBODYS, rubric)


def _is_needless(said: Sequence[Feedback], next_state: Any) -> bool:
    signals = [signal_of(tree) for tree in next_state.signals] if next_state is not None else []
    return not needs_judge(said, signals, NextStateKind(next_state.kind) if next_state is not None else None)


def _words(name: str, said: Sequence[Feedback]) -> Case:
    """The latest words of a user. The job was needless if they have been deleted since."""
    own = [each for each in said if words_of(each)]
    return Case([], words=words.judgement(name, own[-1], _gold(said))) if own else NEEDLESS


def _feedback(session: Session, names: Collection[str]) -> dict[str, list[Feedback]]:
    """What was said about each turn, the latest last."""
    wanted = select(*inspect(FeedbackRow).columns).where(col(FeedbackRow.interaction_id).in_(list(names)))
    found: dict[str, list[Feedback]] = {}
    for row in session.connection().execute(wanted.order_by(col(FeedbackRow.created_at))):
        found.setdefault(row.interaction_id, []).append(feedback_of(row))  # type: ignore[arg-type]
    return found


def _gold(said: Sequence[Feedback]) -> list[str]:
    """The right answers that people gave."""
    return [text for each in said for text in (each.correction, each.demonstration) if text]


NEEDLESS = Case([], is_needless=True)
