"""The quorum of hints: a shared agent is taught a wish only if several proved users have said it, or an operator has.

A hint is looked at sentence by sentence, because a sentence can be added to a wish that everybody has. A sentence is
backed if `needed` users have said one like it, and each of its words has been said by `needed` users. Two sentences are
alike if they share two thirds of their words and both or neither say no. So a rewording is a sentence of its own until
a second user says it, and nobody can add a word that nobody else has said.

Only proved users count, because one person can hold many keys. Words of feedback are the user's who gave it. A back end
may speak for the turn's user: the key of the turn, or one with the scope `users`.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import aliased
from sqlmodel import Session, col

from burnish.journal.tables import AgentRow, FeedbackRow, InteractionRow, JudgementRow, KeyRow, NextStateRow
from burnish.keys import OPEN, UI, Scope, covers
from burnish.records import FeedbackSource, NextStateKind, TargetKind, Who, is_proved, who_of
from burnish.rewards import ACCEPTED, FEEDBACK, WORDS

UNBACKED = "unbacked"
"""The code of a hint that is not taught because too few users have said it."""
LIKENESS = 2 / 3
LOOKED_THROUGH = 4096
"""How many of an agent's latest hints are read."""
_STEM = 5
"""Letters after which two forms of a word count as the same."""
_SENTENCE = re.compile(r"(?<=[.?!;。！？])\s*|\n+")
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[^\w\s]")
_MARKS = frozenset(".,;:?!'\"()*-…。！？、，’‘“”")
_NO = "not"
_NEGATIONS = frozenset({"no", "not", "never", "without", "none", "nor", "t", "dont"})
_SMALL = frozenset(
    re.findall(
        r"\w+",
        """
        a an and are be can could do does don i in is it its me my of or please so that the there this to was we were
        will would you your
        """,
    )
)


def words_of(sentence: str) -> frozenset[str]:
    """The words that make a sentence what it is: stems without small words, with one word for every no."""
    plain = unicodedata.normalize("NFKC", sentence).casefold()
    found = [word for word in _WORD.findall(plain) if word not in _MARKS]
    stems = (_NO if word in _NEGATIONS else word[:_STEM] for word in found if word in _NEGATIONS or word not in _SMALL)
    return frozenset(stems)


def sentences(text: str) -> list[str]:
    """The sentences of a text, without blanks around them."""
    return [part.strip() for part in _SENTENCE.split(text) if part.strip()]


class Quorum:
    """Which hints may be taught, by what has been `said` (pairs of user and text) and `approved` by operators."""

    def __init__(self, said: Iterable[tuple[Hashable, str]], approved: Iterable[str], needed: int) -> None:
        self._needed = needed
        self._voices: dict[frozenset[str], set[Hashable]] = defaultdict(set)
        self._voices_of_word: dict[str, set[Hashable]] = defaultdict(set)
        self._with_word: dict[str, set[frozenset[str]]] = defaultdict(set)
        operators = [_Operator(number) for number in range(needed)]
        pairs = [*said, *((each, text) for text in approved for each in operators)]
        for voice, text in pairs:
            for words in map(words_of, sentences(text)):
                self._voices[words].add(voice)
                for word in words:
                    self._voices_of_word[word].add(voice)
                    self._with_word[word].add(words)

    def backed(self, hint: str) -> str | None:
        """The backed sentences of the hint; None if there are none."""
        found = sentences(hint)
        kept = [sentence for sentence in found if self._is_backed(words_of(sentence))]
        if len(kept) == len(found):
            return hint if found else None
        return " ".join(kept) or None

    def _is_backed(self, words: frozenset[str]) -> bool:
        if not words or any(len(self._voices_of_word.get(word, ())) < self._needed for word in words):
            return False
        near = set().union(*(self._with_word[word] for word in words))
        voices = set().union(*(self._voices[other] for other in near if _is_like(words, other)))
        return len(voices) >= self._needed


class _Operator(int):
    """One of as many voices as the quorum needs: an operator's approval is enough."""


def _is_like(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= LIKENESS * len(one | other) and (_NO in one) == (_NO in other)


def quorum_of(session: Session, agent: str, needed: int) -> Quorum | None:
    """The quorum of an agent as the journal stands. None if it needs none: `needed` is 1 or less, the agent is a
    personal one, or it has had only one user besides its operator.
    """
    row = session.get(AgentRow, agent)
    if needed <= 1 or (row is not None and row.user is not None) or not _has_several_voices(session, agent):
        return None
    return Quorum(_said(session, agent), _approved(session, agent), needed)


def _has_several_voices(session: Session, agent: str) -> bool:
    """True if more than one user or key without a user has talked to the agent. Its operator's own turns are nobody's:
    those without a key, which only programs of the gateway's own user can make, and those of keys that may operate.
    """
    who = (col(InteractionRow.tenant), col(InteractionRow.key_id), col(InteractionRow.user))
    keys = session.execute(select(col(KeyRow.key_id), col(KeyRow.scopes)))
    operators = {OPEN, UI, *(key_id for key_id, held in keys if covers(held, Scope.OPERATOR))}
    is_operators = col(InteractionRow.user).is_(None) & col(InteractionRow.key_id).in_(operators)
    mine = (col(InteractionRow.agent) == agent, col(InteractionRow.may_train).is_(True), ~is_operators)
    first = session.connection().execute(select(*who).where(*mine).limit(1)).first()
    if first is None:
        return False
    tenant, key_id, user = first
    same = col(InteractionRow.user) == user if user is not None else col(InteractionRow.user).is_(None)
    if user is None:
        same &= col(InteractionRow.key_id) == key_id
    wanted = select(col(InteractionRow.interaction_id)).where(*mine, ~(same & (col(InteractionRow.tenant) == tenant)))
    if user is not None:  # a comparison with NULL is not true, nor is its opposite
        nobodys = select(col(InteractionRow.interaction_id)).where(*mine, col(InteractionRow.user).is_(None))
        if session.scalars(nobodys.limit(1)).first() is not None:
            return True
    return session.scalars(wanted.limit(1)).first() is not None


def _said(session: Session, agent: str) -> list[tuple[Who, str]]:
    """The agent's latest accepted hints of proved users, each with its user. Deleted words are nobody's."""
    follower = aliased(InteractionRow)
    turn = (col(InteractionRow.tenant), col(InteractionRow.key_id), col(InteractionRow.user))
    later = (col(follower.tenant), col(follower.key_id), col(follower.user))
    wanted = (
        select(JudgementRow, col(NextStateRow.kind), *turn, *later)
        .join(InteractionRow, col(InteractionRow.interaction_id) == col(JudgementRow.interaction_id))
        .outerjoin(NextStateRow, col(NextStateRow.interaction_id) == col(JudgementRow.interaction_id))
        .outerjoin(follower, col(follower.interaction_id) == col(NextStateRow.follower_id))
        .where(
            col(JudgementRow.hint_status) == ACCEPTED,
            col(InteractionRow.agent) == agent,
            col(InteractionRow.may_train).is_(True),
        )
        .order_by(col(JudgementRow.created_at).desc())
        .limit(LOOKED_THROUGH)
    )
    found: list[tuple[Who, str]] = []
    of_feedback: list[tuple[JudgementRow, tuple[Any, ...]]] = []
    for judged, kind, *who in session.execute(wanted):
        if judged.origin == FEEDBACK:
            of_feedback.append((judged, tuple(who[:3])))
        elif kind == NextStateKind.USER_REPLY:
            speaker = who[3:] if who[3] is not None else who[:3]
            found.append((who_of(*speaker), judged.hint or ""))
    return [pair for pair in (*found, *_of_feedback(session, of_feedback)) if is_proved(pair[0])]


def _of_feedback(session: Session, hints: Sequence[tuple[JudgementRow, tuple[Any, ...]]]) -> list[tuple[Who, str]]:
    by_turn: dict[str, list[FeedbackRow]] = defaultdict(list)
    names = list({judged.interaction_id for judged, _ in hints})
    users = (col(FeedbackRow.source) == FeedbackSource.USER, ~col(FeedbackRow.is_deleted))
    wanted = select(FeedbackRow).where(
        col(FeedbackRow.interaction_id).in_(names), col(FeedbackRow.about) != TargetKind.SESSION, *users
    )
    for row in session.scalars(wanted):
        by_turn[row.interaction_id or ""].append(row)
    keys = {row.key_id for rows in by_turn.values() for row in rows}
    scopes = session.execute(select(col(KeyRow.key_id), col(KeyRow.scopes)).where(col(KeyRow.key_id).in_(keys)))
    back_ends = {key_id for key_id, held in scopes if Scope.USERS in held}
    found = []
    for judged, turn in hints:
        for row in by_turn[judged.interaction_id]:
            text = " ".join((row.comment or row.correction or "").split())
            if not text or (judged.judge_id.startswith(WORDS) and text != judged.hint):
                continue
            speaks_for_user = row.user is None and (row.key_id == turn[1] or row.key_id in back_ends)
            voice = who_of(*turn) if speaks_for_user else who_of(row.tenant, row.key_id, row.user)
            found.append((voice, judged.hint or ""))
    return found


def _approved(session: Session, agent: str) -> list[str]:
    """Comments of operators on turns of the agent: a verifier's feedback that says nothing else. The comment beside an
    outcome is a program's report, which may quote anybody.
    """
    said = (FeedbackRow.rating, FeedbackRow.score, FeedbackRow.outcome, FeedbackRow.correction)
    wanted = (
        select(col(FeedbackRow.comment))
        .join(InteractionRow, col(InteractionRow.interaction_id) == col(FeedbackRow.interaction_id))
        .where(
            col(InteractionRow.agent) == agent,
            col(FeedbackRow.source) == FeedbackSource.VERIFIER,
            ~col(FeedbackRow.is_deleted),
            col(FeedbackRow.comment) != "",
            *(col(column).is_(None) for column in said),
        )
    )
    return [text for text in session.scalars(wanted) if text]
