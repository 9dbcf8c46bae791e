"""Checks a journal with what belongs to it: the database itself, texts, prompts, segments, the adapter store, the
serving table.

It changes nothing, and the server may run meanwhile.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from sqlalchemy import Connection, select, text
from sqlmodel import col

from burnish import serving_table
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.serving.prepare import routes_file
from burnish.adapters.upkeep.copying import Tell, snapshot
from burnish.config import Settings
from burnish.errors import AdapterError, SegmentError, TableError
from burnish.journal import Journal
from burnish.journal.blobs import digest_of_part, is_key_of
from burnish.journal.tables import AliasRow, BlobRow, InteractionRow, LeaseRow, PromptPartRow, SegmentRow, VersionRow
from burnish.records import VersionName, VersionState
from burnish.segments.file import aside_of, read

AT_ONCE = 500
MOST = 20
"""Findings of one kind that are named. The others are counted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong: in `part` of the whole, in a sentence, with the remedy."""

    part: str
    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Report:
    """The findings, and what was looked at."""

    findings: tuple[Finding, ...]
    n_turns: int
    n_texts: int
    n_versions: int
    n_segments: int
    n_waiting: int
    """Records in segments that are not in the journal yet."""

    def to_json(self) -> dict[str, Any]:
        return {"is_sound": not self.findings, **asdict(self)}


_RESTORE = "restore a backup (`burnish journal restore`)"


def check(settings: Settings, journal: Journal, tell: Tell = lambda _: None) -> Report:
    """Look at everything. Raises nothing for what it finds."""
    counts = {"turns": 0, "texts": 0, "versions": 0, "segments": 0, "waiting": 0}
    found: list[Finding] = []
    with snapshot(journal) as source:
        for look in (_database, _turns, _texts, _prompts, _segments, _versions, _table):
            tell(look.__name__.strip("_"))
            found += _few(look(settings, source, counts, tell))
    return Report(tuple(found), *counts.values())


def _few(findings: Iterator[Finding]) -> list[Finding]:
    named = list(islice(findings, MOST))
    if rest := sum(1 for _ in findings):
        named.append(Finding(named[-1].part, f"{rest:,} more of this part", named[-1].remedy))
    return named


def _database(_: Settings, source: Connection, counts: dict[str, int], tell: Tell) -> Iterator[Finding]:
    """SQLite's own check. PostgreSQL's pages are checked as they are read."""
    if source.dialect.name == "sqlite":
        for (line,) in source.execute(text("PRAGMA integrity_check(20)")):
            if line != "ok":
                yield Finding("database", str(line), _RESTORE)


def _turns(_: Settings, source: Connection, counts: dict[str, int], tell: Tell) -> Iterator[Finding]:
    """Every text and every part of a prompt that a turn names is there."""
    named = select(
        col(InteractionRow.interaction_id),
        col(InteractionRow.message_digests),
        col(InteractionRow.reply_digest),
        col(InteractionRow.tools_digest),
        col(InteractionRow.prompt_parts),
    )
    rows = iter(source.execution_options(stream_results=True, yield_per=AT_ONCE).execute(named))
    while batch := list(islice(rows, AT_ONCE)):
        counts["turns"] += len(batch)
        tell(f"turns: {counts['turns']:,}")
        for what, column, names in (
            ("texts", col(BlobRow.digest), {t: {*m, r, *([tools] if tools else [])} for t, m, r, tools, _ in batch}),
            ("parts of its prompt", col(PromptPartRow.digest), {turn: set(parts) for turn, *_, parts in batch}),
        ):
            there = _present(source, column, set().union(*names.values()))
            for turn, digests in names.items():
                if missing := digests - there:
                    yield Finding("turns", f"{turn} names {len(missing)} {what} that are not there", _RESTORE)


def _present(source: Connection, column: Any, digests: set[str]) -> set[str]:
    names, found = sorted(digests), set()
    for start in range(0, len(names), AT_ONCE):
        some = select(column).where(column.in_(names[start : start + AT_ONCE]))
        found |= set(source.execute(some).scalars())
    return found


def _prompts(_: Settings, source: Connection, counts: dict[str, int], tell: Tell) -> Iterator[Finding]:
    """Every part of a prompt is the one that was stored."""
    wanted = select(col(PromptPartRow.digest), col(PromptPartRow.ids))
    rows = source.execution_options(stream_results=True, yield_per=AT_ONCE).execute(wanted)
    for n, (digest, ids) in enumerate(rows, 1):
        if not n % 10_000:
            tell(f"parts of prompts: {n:,}")
        if not is_key_of(digest, digest_of_part(ids)):
            yield Finding("prompts", f"the part {digest[:12]}… of prompts was altered", _RESTORE)


def _texts(_: Settings, source: Connection, counts: dict[str, int], tell: Tell) -> Iterator[Finding]:
    """Every text is the one that was stored."""
    wanted = select(col(BlobRow.digest), col(BlobRow.body))
    for digest, body in source.execution_options(stream_results=True, yield_per=AT_ONCE).execute(wanted):
        counts["texts"] += 1
        if not counts["texts"] % 10_000:
            tell(f"texts: {counts['texts']:,}")
        if not is_key_of(digest, hashlib.sha256(body.encode()).hexdigest()):
            yield Finding("texts", f"the text {digest[:12]}… was altered", _RESTORE)


def _segments(settings: Settings, source: Connection, counts: dict[str, int], tell: Tell) -> Iterator[Finding]:
    rows = source.execute(select(col(SegmentRow.name), col(SegmentRow.offset), col(SegmentRow.error))).all()
    cursors = {name: (offset, error) for name, offset, error in rows}
    for path in sorted(settings.segments_dir.glob("*.seg")):
        offset, error = cursors.get(path.name, (0, None))
        counts["segments"] += 1
        tell(f"segments: {path.name}")
        try:
            if path.stat().st_size < offset:
                yield Finding("segments", f"{path.name} is shorter than what was read of it", _RESTORE)
            elif error is not None:
                yield Finding("segments", f"{path.name} cannot be read further: {error}", "its rest will move aside")
            else:
                counts["waiting"] += sum(1 for _ in read(path, offset))
        except FileNotFoundError:
            continue
        except SegmentError as damage:
            yield Finding("segments", f"{path.name} is damaged: {damage}", "its rest will move aside")
    if n_aside := len(list(aside_of(settings.segments_dir).glob("*.seg"))):
        what = f"{n_aside} files hold records that could not be read"
        yield Finding("segments", what, "look at them, then `burnish journal vacuum` removes them")


def _versions(settings: Settings, source: Connection, counts: dict[str, int], tell: Tell) -> Iterator[Finding]:
    """The store belongs to this journal and has what it lists."""
    store = AdapterStore.of(settings)
    ours = source.execute(select(col(LeaseRow.holder)).where(col(LeaseRow.name) == "adapter store")).scalar()
    theirs = store.journal_id()
    if ours is not None and theirs is not None and ours != theirs:
        yield Finding(
            "adapters", f"{store.root} belongs to another journal", "set journal.url to the one it belongs to"
        )
    rows = source.execute(
        select(col(VersionRow.agent), col(VersionRow.version), col(VersionRow.state)).where(
            col(VersionRow.removed_at).is_(None)
        )
    ).all()
    known: dict[str, int] = {}
    for agent, number, state in rows:
        counts["versions"] += 1
        known[agent] = max(number, known.get(agent, 0))
        tell(f"adapters: {VersionName(agent, number)}")
        try:
            if state != VersionState.CANDIDATE or store.path(agent, number).is_dir():
                store.verify(agent, number)
        except AdapterError as error:
            yield Finding("adapters", str(error), f"roll back if it is live, and {_RESTORE}")
    for agent, alias, number in source.execute(select(col(AliasRow.agent), col(AliasRow.alias), col(AliasRow.version))):
        if number and (agent, number) not in {(row[0], row[1]) for row in rows}:
            what = f"the alias {alias} of {agent} names v{number}, which has no files"
            yield Finding("adapters", what, "`burnish rollback --to N` names another one")


def _table(settings: Settings, source: Connection, counts: dict[str, int], tell: Tell) -> Iterator[Finding]:
    """The serving table names the versions that the journal names."""
    remedy = "start the server again; it makes the table from the journal"
    if not routes_file(settings).exists():
        return
    try:
        agents = serving_table.watch(routes_file(settings)).current().agents
    except (TableError, ValueError, LookupError, TypeError) as error:
        yield Finding("serving table", f"{routes_file(settings)} cannot be read: {error}", remedy)
        return
    rows = source.execute(select(col(AliasRow.agent), col(AliasRow.version)).where(col(AliasRow.alias) == "live"))
    for agent, number in rows:
        route = agents.get(agent)
        if route is not None and route.live != number:
            what = f"{agent}: the table serves v{route.live}, the journal names v{number}"
            yield Finding("serving table", what, remedy)
