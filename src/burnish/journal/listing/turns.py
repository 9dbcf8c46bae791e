"""An agent's turns, newest first, with filters and a search in their texts, and the turns of one session."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select
from sqlmodel import Session, col

from burnish.journal.evidence import evidence_of_all
from burnish.journal.listing import LOOKS, TEXTS, Place
from burnish.journal.story import training_statuses
from burnish.journal.tables import InteractionRow, VersionRow
from burnish.journal.turns import blobs_of
from burnish.records import Message
from burnish.rewards import Effective, compose

Tree = dict[str, Any]
EXCERPT = 280
"""Most characters of a text in a list."""
MOST_OF_SESSION = 200
WALK = 200_000
"""Most entries of the index that one call walks over to find a version's turns."""


class Fate(StrEnum):
    """What became of a turn."""

    TRAINED = "trained"
    READY = "ready"
    WAITING = "waiting"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which turns are listed. `text` must occur in the newest message or in the reply, in any case of letters."""

    version: int | None = None
    user: str | None = None
    fate: Fate | None = None
    text: str = ""
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Some turns, the place where the next page begins (None: there is no more), and how far back the page looked."""

    turns: list[Tree]
    next: str | None
    looked_to: float | None


def page(session: Session, agent: str, wanted: Wanted, *, before: Place | None = None, limit: int = 50) -> Page:
    """The agent's turns that are `wanted`, newest first."""
    places, rest = newest(session, agent, wanted, before, TEXTS if wanted.text else LOOKS)
    kept = _chosen(session, wanted, places, limit)
    following = kept[-1] if len(kept) == limit else rest
    last = following or (places[-1] if places else None)
    names = [place.name for place in kept]
    return Page(lines(session, names), str(following) if following else None, last.at if last else None)


def found(session: Session, agent: str, wanted: Wanted, n: int) -> list[str]:
    """The names of the agent's `n` newest turns that are `wanted`, newest first, however far back they are."""
    names: list[str] = []
    before: Place | None = None
    while len(names) < n:
        places, before = newest(session, agent, wanted, before, TEXTS)
        names += [place.name for place in _chosen(session, wanted, places, n - len(names))]
        if before is None:
            break
    return names


def newest(
    session: Session, agent: str, wanted: Wanted, before: Place | None, n: int
) -> tuple[list[Place], Place | None]:
    """The places of the agent's `n` newest turns in the time and of the version that is `wanted`, and where to go on
    (None: there is no more). For a version, the `WALK` newest entries of the index are looked at.
    """
    at, name = col(InteractionRow.ended_at), col(InteractionRow.interaction_id)
    reach = [col(InteractionRow.agent) == agent, *_after(before)]
    since, bound = _since(session, agent, wanted), None
    if wanted.version is not None:
        entries = select(at).where(col(InteractionRow.agent) == agent, *([at <= before.at] if before else []))
        bound = session.scalars(entries.order_by(at.desc()).offset(WALK).limit(1)).first()
        reach.append(col(InteractionRow.version) == wanted.version)
    if (start := max((each for each in (since, bound) if each is not None), default=None)) is not None:
        reach.append(at >= start)
    rows = session.connection().execute(select(name, at).where(*reach).order_by(at.desc(), name.desc()).limit(n))
    places = [Place(float(when), str(key)) for key, when in rows]
    if len(places) == n:
        return places, places[-1]
    return places, Place(bound, "") if bound is not None and (since is None or since < bound) else None


def of_session(session: Session, agent: str, session_id: str) -> list[Tree]:
    """The first turns of one session, oldest first, at most `MOST_OF_SESSION`, with all that was said: `said` are the
    messages since the reply that the turn continues, `answer` is the reply.
    """
    mine = (col(InteractionRow.session_id) == session_id, col(InteractionRow.agent) == agent)
    ids = select(col(InteractionRow.interaction_id)).where(*mine)
    ordered = ids.order_by(col(InteractionRow.started_at), col(InteractionRow.interaction_id))
    found = lines(session, [str(name) for name in session.scalars(ordered.limit(MOST_OF_SESSION))])
    columns = (InteractionRow.interaction_id, InteractionRow.message_digests, InteractionRow.n_behind)
    names = col(InteractionRow.interaction_id).in_([line["turn"] for line in found])
    said_by = select(*map(col, columns), col(InteractionRow.reply_digest)).where(names)
    rows: Any = session.connection().execute(said_by).all()
    said = {str(name): (digests[-max(1, n_behind) :], reply) for name, digests, n_behind, reply in rows}
    texts = blobs_of(session, {digest for messages, reply in said.values() for digest in (*messages, reply)})
    for line in found:
        messages, reply = said[line["turn"]]
        line |= {"said": [texts[digest] for digest in messages], "answer": texts[reply]}
    return found


def lines(session: Session, names: Sequence[str]) -> list[Tree]:
    """One tree for each of the turns `names`, in their order."""
    rows = {
        row.interaction_id: row
        for row in session.scalars(select(InteractionRow).where(col(InteractionRow.interaction_id).in_(names)))
    }
    said = {name: compose(evidence) for name, evidence in evidence_of_all(session, names).items()}
    status = training_statuses(session, list(rows.values()), said)
    wanted = {digest for row in rows.values() for digest in _digests(row.message_digests, row.reply_digest)}
    texts = blobs_of(session, wanted)
    return [_line(rows[name], said[name], status[name], texts) for name in names if name in rows]


def text_of(message: Message) -> str:
    """A message's text and tool calls, as one text."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [str(part.get("text") or "") for part in parts if isinstance(part, Mapping)]
    calls = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    texts += [f"{call.get('name')}({call.get('arguments')})" for call in calls]
    return " ".join(text for text in texts if text)


def _line(row: InteractionRow, effective: Effective, status: str, texts: Mapping[str, Message]) -> Tree:
    reward = effective.reward
    prompt = texts[row.message_digests[-1]] if row.message_digests else {}
    return {
        "turn": row.interaction_id,
        "version": row.version,
        "session": row.session_id,
        "user": row.user,
        "quoted_user": row.quoted_user,
        "kind": row.kind,
        "route": row.route,
        "ended_at": row.ended_at,
        "seconds": round(row.ended_at - row.started_at, 3),
        "n_tokens": len(row.token_ids) // 4,
        "finish_reason": row.finish_reason,
        "prompt": text_of(prompt)[:EXCERPT],
        "prompt_role": prompt.get("role"),
        "reply": text_of(texts[row.reply_digest])[:EXCERPT],
        "reward": None if reward is None else {"value": reward.value, "source": reward.source},
        "withheld": effective.withheld,
        "fate": fate(row.skip_reason, row.spent_step, row.is_ready),
        "training_status": status,
    }


def fate(skip_reason: str | None, spent_step: int | None, is_ready: bool) -> Fate:
    """What became of a turn, from its state."""
    if skip_reason is not None:
        return Fate.DROPPED
    if spent_step is not None:
        return Fate.TRAINED
    return Fate.READY if is_ready else Fate.WAITING


def _since(session: Session, agent: str, wanted: Wanted) -> float | None:
    """The time from which on turns are wanted. A version answered nothing before it was made."""
    made = session.get(VersionRow, (agent, wanted.version)) if wanted.version is not None else None
    times = [at for at in (wanted.since, made.created_at if made is not None else None) if at is not None]
    return max(times, default=None)


def _after(before: Place | None) -> list[ColumnElement[bool]]:
    if before is None:
        return []
    at, name = col(InteractionRow.ended_at), col(InteractionRow.interaction_id)
    return [at <= before.at, or_(at < before.at, name < before.name)]


def _chosen(session: Session, wanted: Wanted, places: Sequence[Place], limit: int) -> list[Place]:
    """The first `limit` of `places` that are wanted."""
    if wanted.user is None and wanted.fate is None and not wanted.text:
        return list(places[:limit])
    found: list[Place] = []
    for start in range(0, len(places), TEXTS):
        some = places[start : start + TEXTS]
        kept = _matching(session, wanted, [place.name for place in some])
        found += [place for place in some if place.name in kept]
        if len(found) >= limit:
            break
    return found[:limit]


def _matching(session: Session, wanted: Wanted, names: Sequence[str]) -> set[str]:
    conditions: list[ColumnElement[bool]] = [col(InteractionRow.interaction_id).in_(names)]
    if wanted.user is not None:
        user = wanted.user
        conditions.append(or_(col(InteractionRow.user) == user, col(InteractionRow.quoted_user) == user))
    if wanted.fate is not None:
        conditions.append(_OF_FATE[wanted.fate])
    columns = (InteractionRow.interaction_id, InteractionRow.message_digests, InteractionRow.reply_digest)
    rows: Any = session.connection().execute(select(*map(col, columns)).where(*conditions)).all()
    if not wanted.text:
        return {str(row[0]) for row in rows}
    text = wanted.text.casefold()
    digests = {str(row[0]): _digests(row[1], str(row[2])) for row in rows}
    texts = blobs_of(session, {digest for some in digests.values() for digest in some})
    hits = {digest for digest, message in texts.items() if text in text_of(message).casefold()}
    return {name for name, some in digests.items() if not hits.isdisjoint(some)}


def _digests(messages: Sequence[str], reply: str) -> Iterable[str]:
    return (*messages[-1:], reply)


_IS_LEFT = and_(col(InteractionRow.skip_reason).is_(None), col(InteractionRow.spent_step).is_(None))
_OF_FATE: dict[Fate, ColumnElement[bool]] = {
    Fate.TRAINED: and_(col(InteractionRow.skip_reason).is_(None), col(InteractionRow.spent_step).is_not(None)),
    Fate.READY: and_(_IS_LEFT, col(InteractionRow.is_ready).is_(True)),
    Fate.WAITING: and_(_IS_LEFT, col(InteractionRow.is_ready).is_(False)),
    Fate.DROPPED: col(InteractionRow.skip_reason).is_not(None),
}
