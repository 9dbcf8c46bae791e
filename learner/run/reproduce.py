"""Make a past version again from its parent's checkpoint and the rows that the journal lists for it.

Guarantee: nothing is published or changed. On a CPU, with the same libraries and thread count, the same bits come out.
If they do not, `reasons` lists what differs now.
"""

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version as library_version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import load_file
from sqlalchemy import select
from sqlmodel import Session, col

from burnish.adapters.files.store import AdapterStore, digest_of
from burnish.config import Recipe, Settings
from burnish.errors import AdapterError
from burnish.journal import Journal
from burnish.journal.evidence import evidence_of
from burnish.journal.hint_quorum import UNBACKED
from burnish.journal.tables import GroupSampleRow, InteractionRow, SampleRow, StepRow
from burnish.journal.turns import interaction_of
from burnish.learner.data import good_replies
from burnish.learner.data.anchors import Anchors
from burnish.learner.data.samples import Sample, Skipped, to_sample
from burnish.learner.data.shadow_groups import Group, read
from burnish.learner.model import adapter_file, checkpoint
from burnish.learner.model.policy import Policy
from burnish.learner.run.ledger import right_of
from burnish.learner.run.process import anchors_for, trainer_for
from burnish.learner.run.trainer import Trainer
from burnish.learner.safety import hint_validation
from burnish.records import Reward
from burnish.rewards import INTEGRATED


@dataclass(frozen=True, slots=True)
class Reproduced:
    """The result: SHA-256 of the published weights (`expected`) and of those made again, and the largest difference of
    a weight.
    """

    version: int
    parent: int
    n_rows: int
    expected: str
    digest: str
    max_difference: float
    reasons: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        return self.expected == self.digest

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"is_same": self.is_same}


def recipe_of(recorded: Mapping[str, Any]) -> Recipe:
    """The recipe that a version was made with.

    Raises AdapterError for a field that the recipe does not have.
    """
    unknown = [name for name in recorded if name not in Recipe.model_fields]
    if unknown:
        raise AdapterError(
            f"its recipe has the fields {', '.join(unknown)}, which this version of Burnish does not know; "
            "use the one that made it"
        )
    return Recipe.model_validate(recorded)


def reproduce(settings: Settings, journal: Journal, agent: str, version: int, keep: Path | None = None) -> Reproduced:
    """Make `agent@v<version>` again with its original recipe. `keep` is a new folder for the adapter.

    Raises AdapterError if the version, its parent, a row's record or a setting is gone, or if another base is served
    now.
    """
    store = AdapterStore(settings.adapters_dir.resolve())
    manifest = store.verify(agent, version)
    directory, parent = store.path(agent, version), int(manifest["parent"])
    state = json.loads((directory / checkpoint.STATE).read_text(encoding="utf-8"))
    recipe = recipe_of(state["recipe"])
    trainer = trainer_for(settings, recipe, agent)
    if trainer.policy.device.type == "cpu":
        torch.set_num_threads(state["threads"])
    anchors = anchors_for(settings, trainer.policy, recipe)
    if parent:
        store.verify(agent, parent)
        checkpoint.restore(store.path(agent, parent), trainer)
    trainer.policy.set_teacher(store.path(agent, parent) if parent else None)
    n_rows = len(replay(trainer, anchors, journal, agent, version, manifest))
    with TemporaryDirectory() as aside:
        made = keep or Path(aside)
        made.mkdir(parents=True, exist_ok=True)
        adapter_file.save(made, trainer.policy.copy_adapter(), trainer.policy.config)
        digest, expected = digest_of(made / adapter_file.WEIGHTS), str(manifest["files"][adapter_file.WEIGHTS])
        difference = (
            _difference(made / adapter_file.WEIGHTS, directory / adapter_file.WEIGHTS) if digest != expected else 0.0
        )
    return Reproduced(version, parent, n_rows, expected, digest, difference, tuple(_changed(manifest)))


def replay(
    trainer: Trainer, anchors: Anchors | None, journal: Journal, agent: str, version: int, facts: Mapping[str, Any]
) -> list[Sample]:
    """Take the step that made a version again. The trainer is as its learner was then. `facts` are from the manifest.

    Returns the rows. Raises AdapterError if the record of one is gone.
    """
    with journal.read() as session:
        samples = _samples(session, agent, version, facts["rows"], trainer.policy)
        groups = _groups(session, agent, version, facts.get("groups", []))
        liked_replies = hint_validation.read(session, facts.get("jurors", []))
        names = [(name, record_id) for name, record_id in facts.get("good", [])]
        good = good_replies.read(session, names, trainer.policy.tokenizer)
    if len(liked_replies) + len(good) < len(facts.get("jurors", [])) + len(names):
        raise AdapterError(f"{agent}@v{version} was made with praised turns that are no longer in the journal")
    trainer.step(
        samples,
        anchors.draw(trainer.recipe.anchor_rows, trainer.generator) if anchors else [],
        groups,
        facts.get("emphasis", {}),
        has_momentum=facts.get("has_momentum", True),
        rate=facts.get("rate", 1.0),
        liked_replies=liked_replies,
        shrink=facts.get("shrink", 1.0),
        good=good,
    )
    return samples


def _samples(session: Session, agent: str, version: int, names: list[str], policy: Policy) -> list[Sample]:
    """The rows as they were trained, in the order of the manifest, each with its reward and hint at that step."""
    found = session.scalars(
        select(StepRow).where(col(StepRow.agent) == agent, col(StepRow.version) == version)
    ).one_or_none()
    if found is None:
        raise AdapterError(f"the journal has no step that made {agent}@v{version}: it cannot be made again")
    tokenizer, n_vocab = policy.tokenizer, policy.model.config.vocab_size
    samples = []
    for name in names:
        row, turn = session.get(SampleRow, (found.step_id, name)), session.get(InteractionRow, name)
        if row is None or turn is None:
            raise AdapterError(f"{agent}@v{version} was made with the turn {name}, which is no longer in the journal")
        at = evidence_of(session, name).step if row.reward_source == INTEGRATED else None
        hint = row.hint if row.hint_status != UNBACKED else None
        given = (row.reward_source or "", row.record_ids, hint, at)
        reward = Reward(row.reward, *given) if row.reward is not None else None
        right = right_of(session, name)
        right = right if right is not None and right.record_id in row.record_ids else None
        options: dict[str, Any] = {
            "session": turn.session_id,
            "right": right,
            "n_vocab": n_vocab,
            "n_earlier": row.n_earlier,
        }
        then = replace(interaction_of(session, turn), may_train=True)  # whatever its user has wished since
        sample = to_sample(then, reward, tokenizer, **options)
        if isinstance(sample, Skipped):
            raise AdapterError(
                f"the turn {name} cannot be trained any more ({sample.reason}): {agent}@v{version} cannot be made again"
            )
        samples.append(sample)
    return samples


def step_of(session: Session, agent: str, version: int) -> int | None:
    """The id of the step that made a version. None if the journal has none."""
    made = (col(StepRow.agent) == agent, col(StepRow.version) == version)
    return session.scalars(select(col(StepRow.step_id)).where(*made)).one_or_none()


def _groups(session: Session, agent: str, version: int, names: list[str]) -> list[Group]:
    """The shadow groups as they were trained, in the order of the manifest, with their scores at that step."""
    number = step_of(session, agent, version)
    found = []
    for name in names:
        row = session.get(GroupSampleRow, (number, name))
        group = read(session, name, row.scores) if row is not None else None
        if group is None:
            raise AdapterError(
                f"{agent}@v{version} was made with the shadow group of {name}, which is no longer in the journal"
            )
        found.append(group)
    return found


def _difference(made: Path, published: Path) -> float:
    ours, theirs = load_file(made), load_file(published)
    return max(float((ours[name] - theirs[name]).abs().max()) for name in theirs)


def _changed(manifest: Mapping[str, Any]) -> list[str]:
    """The differences between this machine and the one that made the version."""
    then = {**manifest.get("libraries", {}), **({"machine": manifest["machine"]} if "machine" in manifest else {})}
    now = {name: library_version(name) for name in manifest.get("libraries", {})} | {"machine": platform.machine()}
    return [f"{name} was {then[name]}, is {now[name]}" for name in then if then[name] != now[name]]
