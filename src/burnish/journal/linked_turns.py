"""Turns as linking reads them: their places, their kind and their state, without tokens. Many with one query."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import NamedTuple

import msgspec
from sqlalchemy import TextClause, text
from sqlmodel import Session

from burnish.journal.bulk import as_given, given, select_in
from burnish.journal.tables.turns import KEPT_OUT, OPTED_OUT_BEFORE, WEEK
from burnish.journal.turns import OPTED_OUT

MOST_ALIKE = 50
"""Replies alike that are looked at, the latest first. Of a thousand people with the same opening, the earlier ones have
gone on, or no longer will.
"""
MOST_TRIES = 1000
N_WEEKS = 4
"""Weeks that are looked through: the one after the asking turn's, in case of clocks that differ, its own, and two
before.
"""
KEPT_OUT_PLACES = ("tail_hash", "suffix_hash")
PLACES = ("tail_hash", "suffix_hash", "words_hash", "request_hash")


@dataclass(slots=True, eq=False)
class LinkedTurn:
    """A recorded turn. `kind`, `kind_reason` and `skip_reason` may change. `digests` and `prompt_parts` are JSON texts.

    `is_closed`: its session was closed, None if that session is not known. `next_kind` is the kind of its next state.
    `has_feedback`: somebody rated it.
    """

    interaction_id: str
    request_id: str
    agent: str
    tenant: str
    user: str | None
    session_id: str
    parent_id: str | None
    turn_type: str | None
    kind: str
    kind_reason: str
    retry: int
    started_at: float
    ended_at: float
    finish_reason: str | None
    digests: str
    prompt_parts: str
    tools_digest: str | None
    reply_digest: str
    n_behind: int
    tail_hash: str
    choice: int
    may_train: bool
    upstream: str | None
    is_aborted: bool
    skip_reason: str | None
    is_closed: bool | None = None
    next_kind: str | None = None
    has_feedback: bool = False

    @property
    def message_digests(self) -> list[str]:
        found: list[str] = msgspec.json.decode(self.digests)
        return found

    @property
    def part_digests(self) -> list[str]:
        found: list[str] = msgspec.json.decode(self.prompt_parts)
        return found


class Asked(NamedTuple):
    """A hash that a request asks for. `at` is when its turn ended."""

    value: str
    request_id: str
    at: float


class Alike(NamedTuple):
    """A turn at the asked place. `has_follower`: another request has continued it already."""

    turn: LinkedTurn
    has_follower: bool


def filed(session: Session, interaction_ids: Sequence[str]) -> set[str]:
    """Those of `interaction_ids` that the journal has."""
    return {row[0] for row in select_in(session, _FILED, interaction_ids)}


def followed(session: Session, interaction_ids: Sequence[str]) -> set[str]:
    """Those of `interaction_ids` that any turn continues."""
    return {row[0] for row in select_in(session, _FOLLOWED, interaction_ids)}


def turns_of(session: Session, interaction_ids: Sequence[str]) -> list[LinkedTurn]:
    return [LinkedTurn(*row) for row in select_in(session, _TURNS, interaction_ids)]


def alike(
    session: Session, place: str, asked: Sequence[Asked], *, is_kept_out: bool = False
) -> dict[tuple[str, str], list[Alike]]:
    """For each hash and request the latest turns of other requests with that hash at `place`, latest first.

    They are of the last weeks. With `is_kept_out` they are those that are kept out of training, however old they are,
    and `place` is one of `KEPT_OUT_PLACES`.
    """
    given_once = {(each.value, each.request_id): each for each in asked}  # choices of a request end at their own times
    found: dict[tuple[str, str], list[Alike]] = {pair: [] for pair in given_once}
    if given_once:
        connection = session.connection()
        statement = _alike(connection.dialect.name, place, is_kept_out)
        for row in connection.execute(statement, {"given": as_given(list(given_once.values()))}):
            found[row[0], row[1]].append(Alike(LinkedTurn(*row[3:]), bool(row[2])))
    for turns in found.values():
        turns.sort(key=lambda each: -each.turn.ended_at)
        del turns[MOST_ALIKE:]
    return found


def tries(
    session: Session, asked: Sequence[tuple[str, str, float, int, float]]
) -> dict[tuple[str, str], list[LinkedTurn]]:
    """For each (request hash, request, at, retry, since) the other tries of the request that ended after `since`."""
    found: dict[tuple[str, str], list[LinkedTurn]] = {}
    if asked:
        connection = session.connection()
        for row in connection.execute(_tries(connection.dialect.name), {"given": as_given(asked)}):
            found.setdefault((row[0], row[1]), []).append(LinkedTurn(*row[2:]))
    return found


def _of(alias: str) -> str:
    """The columns of a LinkedTurn."""
    names = [f.name for f in fields(LinkedTurn)[: -len(_LOOKED_UP)]]
    return ", ".join([*(_JSON.get(name, '{0}."' + name + '"').format(alias) for name in names), *_LOOKED_UP])


_JSON = {
    "digests": "CAST({0}.message_digests AS TEXT)",
    "prompt_parts": "CAST({0}.prompt_parts AS TEXT)",
}
_LOOKED_UP = (
    "(SELECT closed_at IS NOT NULL FROM session WHERE session_id = turn.session_id)",
    "(SELECT kind FROM next_state WHERE interaction_id = turn.interaction_id)",
    "EXISTS (SELECT 1 FROM feedback WHERE interaction_id = turn.interaction_id)",
)
_FILED = "SELECT interaction_id FROM interaction WHERE interaction_id IN :names"
_FOLLOWED = (
    "SELECT interaction_id FROM interaction AS turn WHERE interaction_id IN :names "
    "AND EXISTS (SELECT 1 FROM interaction AS child WHERE child.parent_id = turn.interaction_id)"
)
_TURNS = f"SELECT {_of('turn')} FROM interaction AS turn WHERE turn.interaction_id IN :names"


_IS_KEPT_OUT = (
    f"{KEPT_OUT.format('one.')} AND (one.upstream IS NULL OR one.skip_reason IN ('{OPTED_OUT}', '{OPTED_OUT_BEFORE}'))"
)
"""Replies of other servers are kept out of training without their user's word, too."""
_IN_WEEK = f"{WEEK.format('one.ended_at')} = {WEEK.format('asked.at')} - week.back"


@lru_cache
def _alike(dialect: str, place: str, is_kept_out: bool) -> TextClause:
    follower = (
        "EXISTS (SELECT 1 FROM interaction AS child WHERE child.parent_id = turn.interaction_id "
        "AND child.request_id != asked.request AND child.kind != 'side')"
    )
    source = given(dialect, hash="text", request="text", at="double precision")
    where = (
        f"{_IS_KEPT_OUT if is_kept_out else _IN_WEEK} AND one.{place} = asked.hash "
        f"AND one.request_id != asked.request ORDER BY one.ended_at DESC LIMIT {MOST_ALIKE}"
    )
    n_weeks = 1 if is_kept_out else N_WEEKS  # one look at all weeks
    return _for_each(dialect, f"asked.hash, asked.request, {follower}", source, where, n_weeks)


@lru_cache
def _tries(dialect: str) -> TextClause:
    since = {"retry": "integer", "since": "double precision"}
    source = given(dialect, hash="text", request="text", at="double precision", **since)
    where = (
        f"{_IN_WEEK} AND one.request_hash = asked.hash AND one.request_id != asked.request "
        f"AND one.retry != asked.retry AND one.ended_at > asked.since ORDER BY one.ended_at DESC LIMIT {MOST_TRIES}"
    )
    return _for_each(dialect, "asked.hash, asked.request", source, where, 3)  # the time since may be in the week before


def _for_each(dialect: str, also: str, source: str, where: str, n_weeks: int) -> TextClause:
    """For each row of `source`, and for each of `n_weeks`, the turns that it asks for. The form keeps both databases at
    the index.
    """
    weeks = " UNION ALL ".join(f"SELECT {back} AS back" for back in range(-1, n_weeks - 1))
    if dialect == "postgresql":
        turns = f"CROSS JOIN LATERAL (SELECT * FROM interaction AS one WHERE {where}) AS turn"
    else:
        found = f"SELECT one.rowid FROM interaction AS one WHERE {where}"
        turns = f"CROSS JOIN interaction AS turn WHERE turn.rowid IN ({found})"
    return text(f"SELECT {also}, {_of('turn')} FROM {source} AS asked CROSS JOIN ({weeks}) AS week {turns}")
