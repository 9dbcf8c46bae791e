"""Fixtures around the tiny model of `tiny.py`."""

import random
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import build_model, interaction

from burnish.config import Recipe
from burnish.learner.data.samples import Sample, to_sample
from burnish.learner.model.policy import Policy
from burnish.learner.run import loop
from burnish.learner.run.trainer import Trainer
from burnish.records import Reward
from tests.journals import any_journal, journal, journal_url, migrated_file, sqlite_url

__all__ = ["any_journal", "journal", "journal_url", "migrated_file", "sqlite_url"]


@pytest.fixture(autouse=True)
def no_wait_for_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step does not wait for groups that might be begun: no drawer runs here."""
    monkeypatch.setattr(loop, "PICK_WAIT", 0.0)


@pytest.fixture(scope="session")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("base"))


@pytest.fixture
def policy(base_dir: Path) -> Policy:
    return Policy.load(base_dir, rank=4, alpha=8, seed=1, device="cpu")


@pytest.fixture
def make_trainer(base_dir: Path) -> Callable[..., Trainer]:
    def make(micro_tokens: int = 4096, **settings: object) -> Trainer:
        usual = {
            "rank": 4,
            "learning_rate": 1e-2,
            "check_hints": False,
            "monitors": "watch",
            # one plain optimiser step with every term: most tests are about one of them
            "step_kl": 0.0,
            "num_iterations": 1,
            "anchor_weight": 0.5,
            "kl_weight": 0.02,
            "distill_teacher": "live",
            "n_examples": 0,
            "sft_weight": 0.0,
        }
        recipe = Recipe(**{**usual, **settings})
        policy = Policy.load(base_dir, rank=recipe.rank, alpha=recipe.lora_alpha, seed=1, device="cpu")
        return Trainer(policy, recipe)

    return make


@pytest.fixture
def make_samples(base_dir: Path) -> Callable[..., list[Sample]]:
    """`n` samples of different lengths, on policy for a fresh adapter, with alternating rewards. Every third has a
    hint.
    """
    policy = Policy.load(base_dir, rank=4, alpha=8, seed=1, device="cpu")

    def make(n: int = 8, *, hints: bool = True, reward: float | None = None) -> list[Sample]:
        rng = random.Random(3)
        samples = []
        for i in range(n):
            reply = [rng.randrange(5, 200) for _ in range(rng.randint(2, 9))] + [0]
            raw = interaction(policy.tokenizer, f"copy {i} " + "x" * rng.randint(0, 20), interaction_id=f"chatcmpl-{i}")
            raw = replace(raw, token_ids=array("i", reply), logprobs=array("f", [-1.0] * len(reply)))
            hint = "Use bold." if hints and i % 3 == 0 else None
            value = reward if reward is not None else (1.0 if i % 2 else -1.0)
            sample = to_sample(raw, Reward(value, "judge", (f"j{i}",), hint), policy.tokenizer, session="s")
            assert isinstance(sample, Sample)
            samples.append(sample)
        return [
            replace(sample, behaviour_logprobs=array("f", found.tolist()))
            for sample, found in zip(samples, policy.logprobs(samples), strict=True)
        ]

    return make
