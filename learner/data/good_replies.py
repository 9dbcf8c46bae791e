"""Good replies: replies that people praised, and replies that people wrote.

They teach twice. The teacher reads a few of them as examples (`examples.py`), and later steps learn them again, token
by token. A small step sees each turn once, so most of what its few good replies could teach would be lost.

Guarantees: the newest come first. No user has a second one among the chosen before every other user has one.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from sqlalchemy import exists, or_, select
from sqlmodel import Session, col

from burnish.journal.tables import FeedbackRow, InteractionRow, SampleRow, StepRow
from burnish.journal.turns import interaction_of, right_reply_of
from burnish.learner.data.samples import RightKind, Sample
from burnish.learner.data.teacher_prompts import right_reply
from burnish.learner.safety.hint_validation import LikedReply
from burnish.records import StepOutcome, who_of
from burnish.rewards import PRAISE

N_STEPS = 16
"""Steps from which earlier good replies come. Older ones were for an agent that has changed since."""

LEAST_SHARE = 1 / 8
"""A step hardly pleases if a smaller share of its judged replies is good. Users count alike."""
MIN_JUDGED = 8
"""With fewer judged replies, nothing is said about a step."""

_IS_WRITTEN = exists().where(
    col(FeedbackRow.interaction_id) == col(SampleRow.interaction_id),
    col(FeedbackRow.demonstration) != "",
    col(FeedbackRow.is_deleted).is_(False),
)


@dataclass(frozen=True, slots=True)
class GoodReply(LikedReply):
    """A praised reply, or a reply that a person wrote in the feedback `record_id`."""

    record_id: str | None = None

    @property
    def name(self) -> tuple[str, str | None]:
        """What finds it again in the journal."""
        return self.interaction_id, self.record_id


def of_step(samples: Sequence[Sample]) -> list[GoodReply]:
    """The good replies of a step, the last first. What a person wrote takes precedence over what the person praised."""
    found = []
    for sample in reversed(samples):
        ids = sample.demonstration_ids if sample.right_kind is RightKind.DEMONSTRATION else None
        if ids is None and (sample.reward or 0.0) < PRAISE:
            continue
        reply = sample.completion_ids if ids is None else ids
        where = (sample.who, sample.interaction_id, sample.prompt_ids, reply)
        found.append(GoodReply(*where, sample.messages, sample.tools))
    return found


def do_some_please(samples: Sequence[Sample]) -> bool:
    """False if replies of a step were judged, and next to none is good.

    Nothing has pleased yet then, or people have changed their mind. Earlier praise does not say what they want now, but
    their words do.
    """
    good = {each.interaction_id for each in of_step(samples)}
    judged: dict[Hashable, list[bool]] = defaultdict(list)
    for sample in samples:
        is_good = sample.interaction_id in good
        if is_good or (sample.reward is not None and sample.reward <= -PRAISE):
            judged[sample.who].append(is_good)
    if sum(map(len, judged.values())) < MIN_JUDGED:
        return True
    return sum(sum(each) / len(each) for each in judged.values()) >= LEAST_SHARE * len(judged)


class Spoken(Protocol):
    """A reply of a turn, and the user of that turn."""

    @property
    def interaction_id(self) -> str: ...
    @property
    def user(self) -> Hashable: ...


_Spoken = TypeVar("_Spoken", bound=Spoken)


def balanced(replies: Iterable[_Spoken], n: int) -> list[_Spoken]:
    """At most `n` of the replies, none twice: first one of each user, then a second one of each, and so on."""
    counts: Counter[Hashable] = Counter()
    places: dict[str, tuple[int, int]] = {}
    usable = list(replies)
    for place, reply in enumerate(usable):
        if reply.interaction_id not in places:
            places[reply.interaction_id] = (counts[reply.user], place)
            counts[reply.user] += 1
    return [usable[place] for _, place in sorted(places.values())[:n]]


class _Found(NamedTuple):
    """Where a good reply is in the journal. `record_id` as in `GoodReply`."""

    interaction_id: str
    user: Hashable
    record_id: str | None


def _find(session: Session, agent: str) -> list[_Found]:
    """The good replies of the agent's last steps that may still train, the last first."""
    ended = (col(StepRow.agent) == agent, col(StepRow.outcome) != StepOutcome.OPEN)
    last = select(col(StepRow.step_id)).where(*ended).order_by(col(StepRow.step_id).desc()).limit(N_STEPS)
    steps = list(session.scalars(last))
    who = (col(InteractionRow.tenant), col(InteractionRow.key_id), col(InteractionRow.user))
    rows = (
        select(SampleRow, _IS_WRITTEN, *who)
        .join(InteractionRow, col(InteractionRow.interaction_id) == col(SampleRow.interaction_id))
        .where(col(SampleRow.step_id).in_(steps), col(InteractionRow.may_train).is_(True))
        .where(or_(col(SampleRow.reward) >= PRAISE, _IS_WRITTEN))
        .order_by(
            col(SampleRow.step_id).desc(), col(InteractionRow.ended_at).desc(), col(InteractionRow.interaction_id)
        )
    )
    found = []
    for sample, has_written, *user in session.execute(rows):
        right = right_reply_of(session, sample.interaction_id) if has_written else None
        if right is not None and right.demonstration and right.feedback_id in sample.record_ids:
            found.append(_Found(sample.interaction_id, who_of(*user), right.feedback_id))
        elif (sample.reward or 0.0) >= PRAISE:
            found.append(_Found(sample.interaction_id, who_of(*user), None))
    return found


def earlier(session: Session, agent: str, n: int, tokenizer: Any) -> list[GoodReply]:
    """At most `n` good replies of the agent's last steps, `balanced`."""
    chosen = balanced(_find(session, agent), n) if n else []
    return read(session, [(each.interaction_id, each.record_id) for each in chosen], tokenizer)


def read(session: Session, names: Iterable[tuple[str, str | None]], tokenizer: Any) -> list[GoodReply]:
    """The good replies of these names, in their order. Those without a record any more are left out."""
    found = []
    for interaction_id, record_id in names:
        row = session.get(InteractionRow, interaction_id)
        if row is None:
            continue
        turn = interaction_of(session, row)
        liked = LikedReply.of(turn)
        reply = liked.completion_ids
        if record_id is not None:
            record = session.get(FeedbackRow, record_id)
            text = record.demonstration if record is not None else None
            ids = right_reply(tokenizer, turn.messages, turn.tools, text, turn.prompt_ids) if text else None
            if ids is None:
                continue
            reply = ids
        where = (liked.user, interaction_id, liked.prompt_ids, reply)
        found.append(GoodReply(*where, turn.messages, turn.tools, record_id))
    return found
