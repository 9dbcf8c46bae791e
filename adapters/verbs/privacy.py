"""A voice's data: the verbs to have it erased and to see how far that is, and its keys, personal agents and versions.

A voice is a proved user of a tenant, or a key without one (`burnish.records.who_of`). The ingester carries an erasure
out (server/ingest/erasures.py).
"""

import json
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select, update
from sqlmodel import Session, col

from burnish.adapters.files.store import MANIFEST, PROBE, AdapterStore, digest_of
from burnish.adapters.registry import audit, canaries, lifecycle, revocations
from burnish.config import Settings
from burnish.errors import NotFound
from burnish.files import replace_text
from burnish.journal import Journal, shadows
from burnish.journal.privacy import erasure, personal_data
from burnish.journal.tables import (
    AgentRow,
    AliasRow,
    ErasureJob,
    GroupSampleRow,
    InteractionRow,
    KeyRow,
    OptOutRow,
    SampleRow,
    StepRow,
    VersionRow,
)
from burnish.journal.turns import OPTED_OUT
from burnish.records import UNDECIDED, CanaryState, StepOutcome, VersionName, Who, digest_of_voice, id_without_words

Tree = dict[str, Any]
WHY = "it learned from turns that were erased"
WHY_OPTED_OUT = "it learned from turns whose user opted out"
NOTHING = erasure.Learned()
FORGOTTEN = ""
"""The user of a personal agent whose user was forgotten."""


def forget(session: Session, who: Who, *, actor: str, reason: str | None = None) -> Tree:
    """Ask for the erasure of everything of `who` up to now. Returns its `standing`. Raises NotFound if nothing is
    known.
    """
    check_known(session, who)
    subject = erasure.ask(session, who, actor, reason)
    audit.record(session, actor, "forget", subject, None, None, reason, tenant=who[0])
    session.flush()
    return standing(session, who)


def export(settings: Settings, journal: Journal, who: Who) -> Iterator[str]:
    """Everything that is stored of `who`, one JSON object a line. Raises NotFound if nothing is known."""
    try:
        with journal.read() as session:
            check_known(session, who)
    except NotFound:
        if next(personal_data.unfiled(journal, settings.segments_dir, who), None) is None:
            raise
    return personal_data.lines(journal, settings.segments_dir, who)


def check_known(session: Session, who: Who) -> None:
    """Raises NotFound if nothing is stored of `who`, with the remedy."""
    tenant, kind, name = who
    is_asked = session.get(ErasureJob, erasure.subject_of(who)) is not None
    if is_asked or any(erasure.count(session, who)) or _has_rows(session, who):
        return
    if kind == "key":
        raise NotFound(
            f"nothing is stored of the key {name!r} in the tenant {tenant!r}; `burnish keys list` shows the keys, and "
            "what a proved user said goes by the user",
            code="user_not_found",
        )
    quoted = (col(InteractionRow.tenant) == tenant, col(InteractionRow.quoted_user) == name)
    keys = sorted(
        set(session.scalars(select(col(InteractionRow.key_id)).where(*quoted, col(InteractionRow.user).is_(None))))
    )
    hint = (
        f"; requests with the keys {', '.join(keys)} name that user without a proof, so those turns are their key's"
        if keys
        else "; for what a key without a user said, name the key"
    )
    raise NotFound(f"nothing is stored of the user {name!r} in the tenant {tenant!r}{hint}", code="user_not_found")


def standing(session: Session, who: Who) -> Tree:
    """How far the latest erasure of `who` is, and which versions learned from what it erased.

    `versions` used the turns themselves. `descended` were trained on from those. Raises NotFound if none was asked for.
    """
    job = session.get(ErasureJob, erasure.subject_of(who), populate_existing=True)
    if job is None:
        raise NotFound("no erasure was asked for; `burnish privacy forget` asks for one", code="erasure_not_found")
    done: Tree = dict(job.payload.get("report") or {})  # type: ignore[call-overload]
    direct = {name for text in done.get("versions", ()) if (name := VersionName.parse(text)) is not None}
    return {
        "erasure": job.subject,
        "state": "done" if job.state == "done" else "running",
        "asked_at": job.created_at,
        "ended_at": job.ended_at,
        "waits_for": job.error,
        **{
            name: done.get(name, 0)
            for name in ("n_turns", "n_feedback", "n_texts", "n_segments", "n_unreadable", "n_keys")
        },
        "versions": [_shown(session, name) for name in _sorted(direct)],
        "descended": [_shown(session, name) for name in _sorted(descended(session, direct) - direct)],
    }


def opt_out(session: Session, who: Who, *, may_record: bool, actor: str, reason: str | None = None) -> int:
    """From now on a user's turns train nothing, and are not recorded without `may_record`. The caller refreshes the
    serving table.

    Recorded turns are kept out too: no later step learns them, again or for the first time, reads them as examples or
    asks them about hints and ratings. Steps under way and versions on trial that use them are given up. Returns how
    many of the turns no step had used.
    """
    session.merge(OptOutRow(voice=digest_of_voice(who), may_record=may_record, at=time.time()))
    mine = _quoted_or_proved(who)
    stop(session, _under_way(session, mine), actor, WHY_OPTED_OUT)
    session.flush()
    execute = session.connection().execute
    why = func.coalesce(col(InteractionRow.skip_reason), OPTED_OUT)
    unspent = (mine, col(InteractionRow.spent_step).is_(None))
    n_turns = execute(update(InteractionRow).where(*unspent).values(skip_reason=why)).rowcount
    execute(update(InteractionRow).where(mine).values(may_train=False))
    shadows.drop_of(session, select(col(InteractionRow.interaction_id)).where(mine), OPTED_OUT)
    what = "training" if may_record else "recording"
    audit.record(session, actor, "opt-out", digest_of_voice(who), None, what, reason, tenant=who[0])
    return int(n_turns)


def opt_in(session: Session, who: Who, *, actor: str, reason: str | None = None) -> bool:
    """End a user's opt-out. What was kept out of training stays out. False if there was none."""
    row = session.get(OptOutRow, digest_of_voice(who))
    if row is None:
        return False
    session.delete(row)
    session.flush()
    audit.record(session, actor, "opt-in", digest_of_voice(who), None, None, reason, tenant=who[0])
    return True


def descended(session: Session, names: Collection[VersionName]) -> set[VersionName]:
    """These versions and all that were made from them."""
    columns = (col(VersionRow.agent), col(VersionRow.version), col(VersionRow.parent), col(VersionRow.parent_agent))
    children: dict[VersionName, list[VersionName]] = {}
    for agent, number, parent, parent_agent in session.connection().execute(select(*columns)):
        children.setdefault(VersionName(parent_agent or agent, parent), []).append(VersionName(agent, number))
    found, waiting = set(names), list(names)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def used_again(
    store: AdapterStore, session: Session, names: Collection[str], said: erasure.Learned = NOTHING
) -> set[VersionName]:
    """The versions whose manifests name any of these turns, as rows, groups, praised replies or good replies, or what
    erased feedback has `said` about others. Also those that were never announced, or are in quarantine.

    Their probes lose the turns' tokens, and their manifests the ids that a client chose for feedback.
    """
    gone, found = {*names, *said.records}, set()
    for directory in store.directories():
        manifest = store.manifest_in(directory)
        name = VersionName(manifest["agent"], manifest["version"])
        steps = manifest.get("steps", ())  # of a version that was retrained
        parts = [manifest, *(step["facts"] for step in steps)]
        retaught = [s["facts"] for s in steps if VersionName(name.agent, s["version"]) in said.versions]
        if (
            any(not gone.isdisjoint(_used(part)) for part in parts)
            or any(not said.turns.isdisjoint(_praised(part)) for part in parts)
            or any(not said.turns.isdisjoint(_used(part)) for part in retaught)
        ):
            _clean(directory, manifest, gone)
            row = session.get(VersionRow, (name.agent, name.version))
            if row is None or row.parent_agent is None or row.step_id is not None:  # a branch has its parent's manifest
                found.add(name)
    return found


def stop(session: Session, names: Collection[VersionName], actor: str, why: str = WHY) -> None:
    """Give up steps under way, and refuse versions that are still on trial, of these. Their other rows come again."""
    for name in _sorted(names):
        row = session.get(VersionRow, (name.agent, name.version))
        if row is None:
            mine = (col(StepRow.agent) == name.agent, col(StepRow.version) == name.version)
            step = session.scalars(select(StepRow).where(*mine)).first()
            if step is not None and step.step_id is not None:
                lifecycle.give_back(session, step.step_id, StepOutcome.FAILED, why)
        elif row.state in UNDECIDED:
            for watched in canaries.running(session, name.agent):
                if watched.version == name.version:
                    canaries.end(session, watched, CanaryState.CANCELLED, why, actor=actor)
            evidence = row.evidence
            lifecycle.refuse(
                session, name.agent, name.version, reason=why, evidence=evidence, actor=actor, gives_back=True
            )


def forget_user(session: Session, who: Who, actor: str) -> tuple[int, list[str]]:
    """Revoke a user's tokens and keys, unname the keys, and bring the personal agents back to the base without a user.

    Returns how many keys, and those agents. An opt-out stays, because it must be kept.
    """
    tenant, kind, name = who
    if kind != "user":
        return 0, []
    revocations.revoke_user(session, tenant, name, actor=actor, reason=None)
    mine = (col(KeyRow.tenant) == tenant, col(KeyRow.user) == name)
    values = {"user": None, "name": "forgotten"}
    n_keys = session.connection().execute(update(KeyRow).where(*mine).values(**values)).rowcount
    own = (col(AgentRow.tenant) == tenant, col(AgentRow.user) == name, col(AgentRow.parent).is_not(None))
    agents = session.scalars(select(AgentRow).where(*own)).all()
    for agent in agents:
        agent.user, agent.settings = FORGOTTEN, {}
        session.flush()
        if live := lifecycle.alias(session, agent.name) or 0:
            lifecycle.promote(session, agent.name, 0, expected=live, actor=actor, reason=WHY)
        if (previous := session.get(AliasRow, (agent.name, lifecycle.PREVIOUS))) is not None:
            session.delete(previous)
        versions = (col(VersionRow.agent) == agent.name, col(VersionRow.removed_at).is_(None))
        session.connection().execute(update(VersionRow).where(*versions).values(removed_at=time.time()))
    return int(n_keys), [agent.name for agent in agents]


def remove_files(store: AdapterStore, agents: Sequence[str]) -> None:
    """Remove all files of these personal agents."""
    for agent in agents:
        store.forget(agent)


def _quoted_or_proved(who: Who) -> ColumnElement[bool]:
    """The condition for the turns of a voice, and for those without a proved user that claimed the user's name."""
    tenant, kind, name = who
    proved = and_(*erasure.turns_of(who))
    if kind != "user":
        return proved
    claimed = (col(InteractionRow.user).is_(None), col(InteractionRow.quoted_user) == name)
    return or_(proved, and_(col(InteractionRow.tenant) == tenant, *claimed))


def _under_way(session: Session, mine: ColumnElement[bool]) -> set[VersionName]:
    """The steps under way, and the versions on trial, that use any of these turns."""
    found: set[VersionName] = set()
    for table in (SampleRow, GroupSampleRow):
        used = (
            select(col(StepRow.agent), col(StepRow.version))
            .join(table, col(table.step_id) == col(StepRow.step_id))
            .join(InteractionRow, col(InteractionRow.interaction_id) == col(table.interaction_id))
            .where(col(StepRow.outcome) == StepOutcome.OPEN, mine)
        )
        found |= {VersionName(str(agent), int(number)) for agent, number in session.connection().execute(used)}
    return found


def _has_rows(session: Session, who: Who) -> bool:
    """True if a user has a key, a personal agent or an opt-out, or if a key is there."""
    tenant, kind, name = who
    if kind == "key":
        row = session.get(KeyRow, name)
        return row is not None and row.tenant == tenant
    wanted = (
        select(col(KeyRow.key_id)).where(col(KeyRow.tenant) == tenant, col(KeyRow.user) == name),
        select(col(AgentRow.name)).where(col(AgentRow.tenant) == tenant, col(AgentRow.user) == name),
        select(col(OptOutRow.voice)).where(col(OptOutRow.voice) == digest_of_voice(who)),
    )
    return any(session.scalars(each).first() is not None for each in wanted)


def _used(facts: Tree) -> set[str]:
    """The turns that the facts of a step name, and the feedback with good replies."""
    named = {name for kind in ("rows", "groups") for name in facts.get(kind, ())}
    return named | _praised(facts) | {record_id for _, record_id in facts.get("good", ()) if record_id is not None}


def _praised(facts: Tree) -> set[str]:
    return {*facts.get("jurors", ()), *(name for name, _ in facts.get("good", ()))}


def _clean(directory: Path, manifest: Tree, gone: set[str]) -> None:
    """Take what is erased out of a version's files, apart from its weights."""
    before = json.dumps(manifest, sort_keys=True)
    for facts in (manifest, *(step["facts"] for step in manifest.get("steps", ()))):
        if "good" in facts:  # earlier versions stored the ids of feedback as clients had chosen them
            facts["good"] = [
                [name, id_without_words(record_id) if record_id is not None and {name, record_id} & gone else record_id]
                for name, record_id in facts["good"]
            ]
    if (directory / PROBE).exists():
        _clean_probe(directory / PROBE, manifest, gone)
        manifest["files"][PROBE] = digest_of(directory / PROBE)
    if json.dumps(manifest, sort_keys=True) != before:
        replace_text(directory / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True))


def _clean_probe(file: Path, manifest: Tree, gone: set[str]) -> None:
    """Take the tokens of erased turns out of a version's probe, which holds its last rows. Only a trial reads it."""
    probe = json.loads(file.read_text(encoding="utf-8"))
    rows = probe.get("rows", [])
    names = manifest.get("rows", [])[-len(rows) :] if rows else []
    emptied = {place for place, name in enumerate(names) if name in gone and rows[place]["prompt_ids"]}
    if emptied:
        for place in emptied:
            rows[place] = {"prompt_ids": [], "completion_ids": []}
        probe["positions"] = [each for each in probe["positions"] if each["row"] not in emptied]
        replace_text(file, json.dumps(probe, sort_keys=True))


def _shown(session: Session, name: VersionName) -> Tree:
    row = session.get(VersionRow, (name.agent, name.version))
    return {
        "version": str(name),
        "state": row.state if row is not None else "a step without a version",
        "has_files": row is not None and row.removed_at is None,
    }


def _sorted(names: Collection[VersionName]) -> list[VersionName]:
    return sorted(names, key=lambda name: (name.agent, name.version))
