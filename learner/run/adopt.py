"""A foreign adapter becomes a version: convert it to the learner's form, probe it, publish it, and put it up for trial.

The version computes the same as the foreign adapter: bit for bit if rank, alpha and layers are the learner's, else up
to rounding. It has a fresh optimiser, so that learning continues from it as from any other version. `python -m
burnish.learner.run.adopt` reads one JSON object from standard input and writes one to standard output. Processes that
may not load torch use it.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from sqlalchemy import select
from sqlmodel import col
from torch import Tensor

from burnish import config
from burnish.adapters.files import foreign
from burnish.adapters.files.contents import WEIGHTS
from burnish.adapters.files.foreign import Foreign
from burnish.adapters.files.store import AdapterStore, digest_of
from burnish.adapters.registry import agents, lifecycle, versions
from burnish.config import Recipe, Settings
from burnish.errors import AdapterError, BurnishError
from burnish.journal import Journal
from burnish.journal.blobs import prompts_of
from burnish.journal.tables import InteractionRow
from burnish.journal.turns import from_bytes
from burnish.learner.data.rows import Text
from burnish.learner.data.teacher_prompts import render
from burnish.learner.model import adapter_file, checkpoint
from burnish.learner.model.generation import generate
from burnish.learner.model.policy import Policy
from burnish.learner.model.probe import MAX_ROWS, build_probe
from burnish.learner.run.process import trainer_for

N_REPLY = 48
"""Tokens of a reply to the opening, at most."""
_OPENING = "Hello! Please tell me in a few words what you can do for me today."


def adopt(
    settings: Settings, journal: Journal, agent: str, directory: Path, *, actor: str, any_base: bool = False
) -> tuple[int, Foreign]:
    """Import the PEFT adapter in `directory` as the next version of `agent`, a candidate. Returns its number and what
    was read.

    Raises NotFound, Conflict (another version is on trial) or AdapterError. A number allocated before the error stays
    allocated.
    """
    with journal.read() as session:
        agents.find(session, agent)
    given = foreign.read(
        directory, model=settings.engine.model, max_rank=settings.engine.max_lora_rank, any_base=any_base
    )
    recipe = _recipe_for(settings, given)
    trainer = trainer_for(settings, recipe, agent)
    fitted = fit(load_file(given.directory / WEIGHTS), given, trainer.policy)
    with journal.write() as session:
        live = lifecycle.alias(session, agent) or 0
        number = versions.reserve(session, agent, parent=live, actor=actor)
    try:
        store = AdapterStore.of(settings)
        _compare_with(trainer.policy, store.path(agent, live) if live else None)
        adapter_file.copy(fitted, trainer.policy.parameters(), str(directory))
        probe = build_probe(trainer.policy, _texts(journal, agent, trainer.policy))
        facts = {"origin": "import", "imported": _import_facts(given)}
        checkpoint.save(store, agent, number, trainer, parent=live, rows=[], metrics={}, probe=probe, facts=facts)
    except BaseException as error:
        with journal.write() as session:
            versions.give_up(session, agent, number, f"its import failed: {error}")
        raise
    with journal.write() as session:
        versions.admit(session, agent, number, str(store.manifest(agent, number)["files"][WEIGHTS]))
    return number, given


def fit(found: Mapping[str, Tensor], given: Foreign, policy: Policy) -> dict[str, Tensor]:
    """`found` as tensors with the policy's names and shapes that compute the same.

    A smaller rank is filled up with the fresh adapter's rows of A and zeros in B. Layers that `found` lacks come from
    the fresh adapter. B absorbs the difference in scaling (alpha / rank): B'·A'·s' = B·A·s. Raises AdapterError for
    layers that the policy does not train.
    """
    if odd := sorted(set(found) - set(policy.parameters())):
        raise AdapterError(
            f"the learner does not train the layer {odd[0].partition('.lora_')[0]}; leave it out of the adapter"
        )
    factor = given.scaling / (policy.config.lora_alpha / policy.config.r)
    policy.reset()
    made = policy.copy_adapter()
    for name, tensor in found.items():
        values = tensor.to(torch.float32)
        if not torch.isfinite(values).all():
            raise AdapterError(f"{given.directory / WEIGHTS}: {name} holds values that are not finite")
        if ".lora_A." in name:
            made[name][: given.rank] = values
        else:
            made[name][:, : given.rank] = values if factor == 1.0 else values * factor
    return made


def _recipe_for(settings: Settings, given: Foreign) -> Recipe:
    """The recipe. Its rank changes only if nothing can be learned from the import."""
    recipe = settings.recipe
    if given.rank <= recipe.rank:
        return recipe
    if settings.learner.enabled:
        raise AdapterError(
            f"the adapter's rank {given.rank} exceeds the learner's {recipe.rank}, "
            "so learning could not continue from it; "
            "raise learner.rank, or serve without learning (learner.enabled = false)"
        )
    return recipe.model_copy(update={"rank": given.rank, "alpha": round(given.scaling * given.rank) or 1})


def _compare_with(policy: Policy, directory: Path | None) -> None:
    """Make the probe distinguish the import from the live version too, or only from the base if their forms differ."""
    try:
        policy.set_teacher(directory)
    except AdapterError:
        policy.set_teacher(None)


def _texts(journal: Journal, agent: str, policy: Policy) -> Sequence[Text]:
    """The texts for the probe: the agent's latest turns, or if there are none, the import's reply to an opening."""
    whole = (
        col(InteractionRow.agent) == agent,
        col(InteractionRow.may_train).is_(True),
        col(InteractionRow.quarantine).is_(None),
        col(InteractionRow.upstream).is_(None),
    )
    newest = (
        select(col(InteractionRow.token_ids), col(InteractionRow.prompt_parts), col(InteractionRow.prompt_rest))
        .where(*whole)
        .order_by(col(InteractionRow.ended_at).desc())
        .limit(MAX_ROWS)
    )
    with journal.read() as session:
        found = session.connection().execute(newest).all()
        prompts = prompts_of(session, [(parts, rest) for _, parts, rest in found])
    rows = [(list(prompt), list(from_bytes("i", ids))) for prompt, (ids, *_) in zip(prompts, found, strict=True)]
    n_vocab = policy.model.config.vocab_size
    texts = [Text(prompt, reply) for prompt, reply in rows if prompt and reply and max(*prompt, *reply) < n_vocab]
    if texts:
        return texts
    ids = list(render(policy.tokenizer, [{"role": "user", "content": _OPENING}], ()))
    (reply,) = generate([ids], policy, N_REPLY, is_sampled=False)
    return [Text(ids, reply)]


def _import_facts(given: Foreign) -> dict[str, Any]:
    file = given.directory / WEIGHTS
    return {
        "rank": given.rank,
        "alpha": given.alpha,
        "targets": sorted(given.targets),
        "base": given.base,
        "digest": digest_of(file),
    }


def main() -> None:
    """Answer one request: {settings, agent, directory, actor, any_base} → {version, ignored}, or {error, kind}."""
    asked = json.load(sys.stdin)
    try:
        settings = config.given(asked["settings"])
        journal = Journal.open(settings.journal_url, migrate=False)
        options = {"actor": asked["actor"], "any_base": asked["any_base"]}
        number, read = adopt(settings, journal, asked["agent"], Path(asked["directory"]), **options)
        answer: dict[str, Any] = {"version": number, "ignored": list(read.ignored)}
    except BurnishError as error:
        answer = {"error": str(error), "kind": type(error).__name__}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
