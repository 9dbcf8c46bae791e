"""The recipe: batches teach what they should, and the same seed gives the same weights."""

import random
from itertools import islice
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from burnish.judges.verdicts.verdict import parse_vote
from burnish.sandbox import MODEL
from burnish.sandbox.training import build_model, corpus, judging_rows, padded_rows, training
from burnish.sandbox.world import language


def test_the_mask_covers_what_the_assistant_writes_and_nothing_else() -> None:
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    rng = random.Random(0)
    for _ in range(30):
        row = corpus.draw_row(rng)
        ids, mask = padded_rows.encode(tokenizer, row)
        written = tokenizer.decode([token for token, is_target in zip(ids, mask, strict=True) if is_target]).split(
            "<|end|>"
        )[:-1]
        said = [message for message in row.messages if message["role"] == "assistant"]
        assert len(written) == len(said)
        assert [text for text, message in zip(written, said, strict=True) if message["content"]] == [
            message["content"] for message in said if message["content"]
        ]


def test_rows_use_conversation_arguments_only() -> None:
    rng = random.Random(0)
    for _ in range(300):
        for message in corpus.draw_row(rng).messages:
            task = language.parse_task(str(message["content"])) if message["role"] == "user" else None
            assert task is None or not language.is_held_out(task.arguments)


def test_every_case_s_answer_is_read_by_production_s_parser() -> None:
    rng = random.Random(0)
    cases = [judging_rows.draw_case(rng) for _ in range(300)]
    for case in cases:
        vote = parse_vote(judging_rows.case_answer(case))
        assert (vote.score, vote.hint or "none") == (case.score, case.hint)
    assert {case.score for case in cases} == {1, 0, -1, None}
    assert max(len(case.conversation) for case in cases) > 6


def test_a_shared_opening_changes_no_loss() -> None:
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    torch.manual_seed(0)
    model = training.build_model(tokenizer)
    prefix = padded_rows.shared_prefix(tokenizer, judging_rows.draw_row)
    assert len(prefix) > 100
    assert padded_rows.shared_prefix(tokenizer, corpus.draw_row) == []
    losses = []
    for opening in (prefix, []):
        batch = next(padded_rows.batches(tokenizer, judging_rows.draw_row, random.Random(1), 4, opening))
        losses.append(training.mean_loss(model, batch).item())
    assert losses[0] == pytest.approx(losses[1], rel=5e-3)  # bfloat16


def test_a_row_without_the_shared_opening_is_refused() -> None:
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    with pytest.raises(ValueError, match="shared opening"):
        list(islice(padded_rows.batches(tokenizer, corpus.draw_row, random.Random(1), 4, [1, 2, 3]), 1))


@pytest.mark.skipif(not training.is_fast_here(), reason="this CPU imitates bfloat16: these steps would take minutes")
def test_a_few_steps_twice_give_the_same_weights_and_a_falling_loss(tmp_path: Path) -> None:
    first, second = (
        build_model.build(tmp_path / name, n_steps=8, seed=3, n_threads=2, n_samples=0) for name in ("a", "b")
    )
    assert first["sha256"] == second["sha256"] == build_model.digests(tmp_path / "a")
    assert "model.safetensors" in first["sha256"]
    assert first["final_loss"] < first["first_loss"]
    other = build_model.build(tmp_path / "b", n_steps=1, seed=4, n_threads=2, n_samples=0)
    assert other["sha256"]["model.safetensors"] != first["sha256"]["model.safetensors"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_full_rebuild_is_as_good_as_the_shipped_model(tmp_path: Path) -> None:
    manifest = build_model.build(
        tmp_path / "model", build_model.DEFAULT_STEPS, build_model.DEFAULT_SEED, build_model.DEFAULT_THREADS
    )
    figures = manifest["measured"]
    assert min(figures["verdict_right"], figures["base_right"]) >= 0.95
    assert figures["hint_exact"] >= 0.8
    assert min(value for name, value in figures.items() if name.startswith("obeys")) >= 0.93
    assert 0.04 < figures["base_satisfies_house"] < 0.15
