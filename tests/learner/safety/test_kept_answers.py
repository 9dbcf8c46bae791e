"""The record of kept answers in a version directory agrees with greedy decoding."""

import json
from pathlib import Path

import pytest
import torch
from tiny import perturb

from burnish.config import SANDBOX_MODEL
from burnish.errors import LearnerError
from burnish.learner.model.generation import generate
from burnish.learner.model.policy import Policy, Weights
from burnish.learner.safety.kept_answers import MAX_TOKENS, KeptAnswers

N = 24
FILE = SANDBOX_MODEL.parent / "data" / "retention.jsonl"


@pytest.fixture(scope="module")
def sandbox() -> Policy:
    return Policy.load(SANDBOX_MODEL, rank=8, alpha=16, seed=0, device="cpu", threads=1)


@pytest.fixture(scope="module")
def kept_answers(sandbox: Policy, tmp_path_factory: pytest.TempPathFactory) -> KeptAnswers:
    return KeptAnswers.load(FILE, N, sandbox, tmp_path_factory.mktemp("cache"))


def test_a_fresh_adapter_gives_every_answer_of_the_base(sandbox: Policy, kept_answers: KeptAnswers) -> None:
    sandbox.reset()
    record = kept_answers.record(sandbox)
    assert (record["n"], len(record["unchanged"])) == (N, sum(answer is not None for answer in kept_answers.answers))
    assert len(record["unchanged"]) >= N - 2  # the sandbox's base ends its answers
    json.dumps(record)


def test_unchanged_are_exactly_the_answers_that_greedy_decoding_would_repeat(
    sandbox: Policy, kept_answers: KeptAnswers
) -> None:
    sandbox.reset()
    perturb(sandbox, 0.04)
    unchanged = set(kept_answers.record(sandbox)["unchanged"])
    assert 0 < len(unchanged) < N  # else this test would prove nothing
    known = [(i, answer) for i, answer in enumerate(kept_answers.answers) if answer is not None]
    with torch.no_grad(), sandbox.using(Weights.CURRENT):
        for i, answer in known:
            (made,) = generate([answer.prompt_ids], sandbox, MAX_TOKENS, is_sampled=False)
            assert (i in unchanged) == (made == list(answer.completion_ids)), i


def test_answers_are_made_once(sandbox: Policy, tmp_path: Path) -> None:
    first = KeptAnswers.load(FILE, 4, sandbox, tmp_path)
    perturb(sandbox)
    again = KeptAnswers.load(FILE, 4, sandbox, tmp_path)
    assert (again.digest, again.answers) == (first.digest, first.answers)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_bad_file_is_a_readable_error(sandbox: Policy, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"prompt": "x"}\n')
    with pytest.raises(LearnerError, match="not a file of prompts"):
        KeptAnswers.load(tmp_path / "bad.jsonl", 4, sandbox, tmp_path)
