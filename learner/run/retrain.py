"""Retrain: the live version made again without the turns that were erased or whose users opted out since, and without
rewards that rest on erased words. It is put to the gate like any other.

The steps since the last ancestor that used none of them are taken again, each with its recipe, its random numbers and
its rows that are left (learner/run/reproduce.py). What comes out is what these steps would have made of those rows
alone, on the same machine with the same libraries. A step without a row is left out.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from sqlalchemy import ColumnElement, select
from sqlmodel import Session, col

from burnish.adapters.files.binding import bind
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import lifecycle
from burnish.adapters.registry.versions import admit, give_up, reserve
from burnish.config import Settings
from burnish.errors import AdapterError
from burnish.journal import Journal
from burnish.journal.tables import FeedbackRow, InteractionRow, JudgementRow, NextStateRow, SampleRow, VersionRow
from burnish.learner.data.samples import Sample
from burnish.learner.model import checkpoint
from burnish.learner.model.probe import build_probe
from burnish.learner.run import contributions, reproduce
from burnish.learner.run.process import anchors_for, kept_answers_for, trainer_for
from burnish.learner.run.trainer import Trainer
from burnish.records import VersionName
from burnish.rewards import NEXT_STATE

ORIGIN = "retrain"
_OF_TURNS = ("rows", "groups", "jurors")
_FACTS = (*_OF_TURNS, "good", "emphasis", "has_momentum", "rate", "shrink")


@dataclass(frozen=True, slots=True)
class Retrained:
    """`version` is the new candidate, made from `start` in `n_steps` steps on `n_rows` rows, without `n_gone`. It is
    None if the live version used no such turn, or if nothing of the steps is left: then `start` is what remains.
    """

    agent: str
    live: str
    start: str
    version: str | None
    n_steps: int
    n_rows: int
    n_gone: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Past:
    """A step as it was taken: the version that it made, its recipe, its threads, and what its manifest says."""

    version: int
    recipe: Mapping[str, Any]
    threads: int
    facts: Mapping[str, Any]

    @property
    def turns(self) -> set[str]:
        """Every turn that it used in any way."""
        used = {name for kind in _OF_TURNS for name in self.facts.get(kind, ())}
        return used | {name for name, _ in self.facts.get("good", ())}

    def without(self, gone: set[str], unsaid: set[str]) -> "Past":
        """The same step on the turns that are left. Of `unsaid` turns no row is left."""
        facts = {**self.facts, **{kind: [n for n in self.facts.get(kind, ()) if n not in gone] for kind in _OF_TURNS}}
        facts["rows"] = [name for name in facts["rows"] if name not in unsaid]
        facts["good"] = [[name, record_id] for name, record_id in self.facts.get("good", ()) if name not in gone]
        return replace(self, facts=facts)


def retrain(settings: Settings, journal: Journal, agent: str, *, actor: str) -> Retrained:
    """Make the agent's live version again without turns that may not train any more, and put it up for trial.

    Raises Conflict while another version is on trial, AdapterError if nothing says how a version was made, or if
    another base is served.
    """
    store = AdapterStore(settings.adapters_dir.resolve())
    bind(journal, store)
    with journal.read() as session:
        live = lifecycle.alias(session, agent) or 0
        start, past, left = _chain(session, store, agent, live)
    names = (agent, str(VersionName(agent, live)), str(VersionName(agent, start)))
    n_gone = sum(len(step.facts["rows"]) for step in past) - sum(len(step.facts["rows"]) for step in left)
    left = [step for step in left if step.facts["rows"] or step.facts.get("groups")]
    n_rows = sum(len(step.facts["rows"]) for step in left)
    if not left:
        return Retrained(*names, None, 0, 0, n_gone)
    with journal.write() as session:
        number = reserve(session, agent, parent=start, actor=actor, origin=ORIGIN)
    try:
        _make(settings, journal, store, agent, number, start, left)
    except BaseException as error:
        with journal.write() as session:
            give_up(session, agent, number, f"it could not be retrained: {error}"[:500])
        raise
    digest = str(store.manifest(agent, number)["files"]["adapter_model.safetensors"])
    with journal.write() as session:
        kept = {step.version: {*step.facts["rows"], *step.facts.get("groups", ())} for step in left}
        admit(session, agent, number, digest, {lifecycle.DATA: contributions.of_versions(session, agent, kept)})
    return Retrained(*names, str(VersionName(agent, number)), len(left), n_rows, n_gone)


def _make(
    settings: Settings, journal: Journal, store: AdapterStore, agent: str, number: int, start: int, past: Sequence[Past]
) -> None:
    """Take the steps again and publish what comes out as version `number`."""
    before = store.path(agent, start) if start else None
    if start:
        store.verify(agent, start)
    trainer: Trainer | None = None
    samples: list[Sample] = []
    with TemporaryDirectory() as folder:
        aside, last = AdapterStore(Path(folder)), before
        for place, step in enumerate(past, 1):
            recipe = reproduce.recipe_of(step.recipe)
            if trainer is None or trainer.recipe != recipe:
                trainer = trainer_for(settings, recipe, agent)
                anchors = anchors_for(settings, trainer.policy, recipe)
                if last is not None:
                    checkpoint.restore(last, trainer)
            if trainer.policy.device.type == "cpu":
                torch.set_num_threads(step.threads)
            trainer.policy.set_teacher(last)
            samples = reproduce.replay(trainer, anchors, journal, agent, step.version, step.facts) or samples
            last = checkpoint.save(aside, agent, place, trainer, parent=place - 1, rows=[], metrics={}, probe={})
        assert trainer is not None, "there is at least one step"
        trainer.policy.set_teacher(before)
        kept_answers = kept_answers_for(settings, trainer.policy)
        checkpoint.save(
            store,
            agent,
            number,
            trainer,
            parent=start,
            rows=[name for step in past for name in step.facts["rows"]],
            metrics={},
            probe=build_probe(trainer.policy, samples),
            kept_answers=kept_answers.record(trainer.policy) if kept_answers is not None else None,
            facts={"steps": [asdict(step) for step in past]},
        )


def _chain(session: Session, store: AdapterStore, agent: str, live: int) -> tuple[int, list[Past], list[Past]]:
    """The last ancestor of `live` that used nothing that is gone and whose weights are there, and the steps from there
    to `live`, oldest first: as they were, and on what is left.
    """
    versions: list[tuple[int, list[Past]]] = []
    number = live
    while number:
        row = session.get(VersionRow, (agent, number))
        if row is None or row.parent_agent is not None:
            break  # a branch begins here, or an import whose parent is elsewhere
        versions.append((row.parent, _steps_of(store, agent, number) if row.origin in ("step", ORIGIN) else []))
        number = row.parent
    versions.reverse()
    left = [[_left(session, agent, step) for step in steps] for _, steps in versions]
    affected = [place for place, (_, steps) in enumerate(versions) if left[place] != steps]
    if not affected:
        return live, [], []
    place = affected[0]
    while place and not store.path(agent, versions[place][0]).is_dir():
        place -= 1
    past = [step for _, steps in versions[place:] for step in steps]
    return versions[place][0], past, [step for steps in left[place:] for step in steps]


def _steps_of(store: AdapterStore, agent: str, number: int) -> list[Past]:
    """The step that made a version, or the steps of one that was retrained. Raises AdapterError without its record."""
    directory = store.record(agent, number)
    if not directory.is_dir():
        raise AdapterError(
            f"nothing says how {VersionName(agent, number)} was made, so what came after it cannot be made again; go "
            "back with `burnish rollback --to 0`"
        )
    manifest = store.manifest(agent, number)
    if "steps" in manifest:
        return [Past(**step) for step in manifest["steps"]]
    state = json.loads((directory / checkpoint.STATE).read_text(encoding="utf-8"))
    facts = {name: manifest[name] for name in _FACTS if name in manifest}
    return [Past(number, state["recipe"], state["threads"], {"rows": [], **facts})]


def _left(session: Session, agent: str, step: Past) -> Past:
    """The step on what is left. The same if nothing of it is gone."""
    gone, unsaid = _gone(session, step.turns), _unsaid(session, agent, step)
    return step.without(gone, unsaid) if gone or unsaid else step


def _unsaid(session: Session, agent: str, step: Past) -> set[str]:
    """The rows of a step whose reward or hint rests on words that were erased."""
    number = reproduce.step_of(session, agent, step.version)
    names = set(step.facts.get("rows", ()))
    rows = session.scalars(select(SampleRow).where(col(SampleRow.step_id) == number))
    records = {row.interaction_id: set(row.record_ids) for row in rows if row.interaction_id in names}
    there = _there(session, NextStateRow.interaction_id, records)
    said = set().union(*records.values()) - {NEXT_STATE}
    known = _there(session, FeedbackRow.feedback_id, said) | _there(session, JudgementRow.judgement_id, said)
    return {
        name
        for name, used in records.items()
        if not used - {NEXT_STATE} <= known or (NEXT_STATE in used and name not in there)
    }


def _gone(session: Session, names: set[str]) -> set[str]:
    """Those of the turns that were erased, or whose users opted out."""
    return names - _there(session, InteractionRow.interaction_id, names, col(InteractionRow.may_train).is_(True))


def _there(session: Session, column: Any, names: Iterable[str], *where: ColumnElement[bool]) -> set[str]:
    """Those of `names` that the column has, in rows for which `where` holds."""
    listed, found = sorted(names), set[str]()
    for begin in range(0, len(listed), 500):
        some = col(column).in_(listed[begin : begin + 500])
        found |= set(session.scalars(select(col(column)).where(some, *where)))
    return found
