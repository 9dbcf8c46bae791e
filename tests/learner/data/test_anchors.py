"""Anchors are the beginnings of the base's own answers, made once."""

import errno
import json
from pathlib import Path

import pytest
import torch
from tiny import perturb

from burnish import files
from burnish.errors import LearnerError
from burnish.learner.data import anchors
from burnish.learner.data.anchors import Anchors, first_clause
from burnish.learner.model.policy import Policy


def write(file: Path, *lines: object) -> Path:
    file.write_text("\n".join(json.dumps(line) for line in lines))
    return file


def ask(text: str, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], **more}


def test_anchors_are_the_bases_own_and_cached(policy: Policy, tmp_path: Path) -> None:
    file = write(tmp_path / "anchors.jsonl", *(ask(f"question {i}", check=".*") for i in range(16)))
    first = Anchors.load(file, policy, tmp_path / "cache", max_new_tokens=24)
    assert len(first.texts) == 16 and max(len(text.completion_ids) for text in first.texts) == 24
    assert all(0 not in text.completion_ids[:-1] for text in first.texts), "an answer ends where it ends"
    for text in first.texts:
        with torch.no_grad():
            (likeliest,) = policy.top([text], 1)
        assert likeliest.squeeze(1).tolist() == list(text.completion_ids)
    perturb(policy)
    policy.model.generate = None  # neither the adapter nor a second run changes them: they come from the cache
    again = Anchors.load(file, policy, tmp_path / "cache", max_new_tokens=24)
    assert again.texts == first.texts
    draw = [first.draw(3, torch.Generator().manual_seed(1)) for _ in range(2)]
    assert draw[0] == draw[1] and len(draw[0]) == min(3, len(first.texts))
    assert len(first.draw(1000, torch.Generator())) == len(first.texts)


class Pieces:
    """A tokenizer whose id i is the piece i."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces

    def decode(self, ids: list[int]) -> str:
        return "".join(self.pieces[i] for i in ids)


@pytest.mark.parametrize(
    ("pieces", "kept"),
    [
        (("Bud", "apest", ".", "<end>"), 4),  # the end of a short answer is kept
        (("It", " is", " Rome", ",", " which", " is"), 3),  # a comma is style
        (("A", " lion", ".", " It", " roars"), 3),  # so is a second sentence
        (("It", " is", ' "hot', '".', " In", " some"), 4),  # quoted, and pieces of two characters
        (("Pi", " is", " 3", ".", "14", " or", " so"), 7),  # no sentence ends within a number
        (("Use", ":", "\n\n", "```"), 2),
        (("東京", "、", "日本"), 1),
        ((",", " well"), 2),  # never empty
    ],
)
def test_an_anchor_is_the_first_clause(pieces: tuple[str, ...], kept: int) -> None:
    assert first_clause(list(range(len(pieces))), Pieces(*pieces)) == list(range(kept))


def test_answers_with_a_check_or_tools_stay_whole(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = policy.tokenizer.encode("It is Rome, which is old.", add_special_tokens=False)
    monkeypatch.setattr(anchors, "generate", lambda prompts, *_, **__: [answer] * len(prompts))
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    file = write(tmp_path / "anchors.jsonl", ask("a"), ask("b", check="It is Rome.*"), ask("c", tools=[tool]))
    kept = [
        policy.tokenizer.decode(text.completion_ids) for text in Anchors.load(file, policy, tmp_path / "cache").texts
    ]
    assert kept == ["It is Rome", "It is Rome, which is old.", "It is Rome, which is old."]


def test_an_answer_that_fails_its_check_is_no_anchor(policy: Policy, tmp_path: Path) -> None:
    file = write(tmp_path / "anchors.jsonl", *(ask(f"question {i}", check="never this") for i in range(8)))
    assert Anchors.load(file, policy, tmp_path, max_new_tokens=64).texts == []


@pytest.mark.parametrize("line", [{"prompt": "x"}, {"messages": []}, ask("x", check="("), "text"])
def test_a_bad_file_is_a_readable_error(policy: Policy, tmp_path: Path, line: object) -> None:
    with pytest.raises(LearnerError, match="not a file of prompts"):
        Anchors.load(write(tmp_path / "anchors.jsonl", line), policy, tmp_path)
    with pytest.raises(LearnerError, match="cannot read"):
        Anchors.load(tmp_path / "missing", policy, tmp_path)


def test_a_full_disk_keeps_no_anchors_for_the_next_start_and_stops_nothing(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_no_room(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(files, "replace_text", has_no_room)
    file = write(tmp_path / "anchors.jsonl", *(ask(f"question {i}", check=".*") for i in range(4)))
    assert len(Anchors.load(file, policy, tmp_path / "cache").texts) == 4
    assert not (tmp_path / "cache").exists()
