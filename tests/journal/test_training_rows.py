"""JSONL for other trainers: the correct turns and columns, page by page, and no excluded turn."""

import json
from pathlib import Path
from typing import Any

import pytest

from burnish.journal import Journal, training_rows
from burnish.journal.training_rows import Format
from tests.factories import interaction, user
from tests.turns import add_feedback, add_turn

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}


def add(journal: Journal, name: str, rating: float | None = None, correction: str | None = None, **turn: Any) -> None:
    state = turn.pop("state", {})
    add_turn(journal, interaction([user(f"ask {name}")], f"reply {name}", interaction_id=name, **turn), **state)
    if rating is not None or correction is not None:
        add_feedback(journal, name, rating, correction=correction)


def exported(journal: Journal, form: Format, **filters: Any) -> list[dict[str, Any]]:
    return list(training_rows.rows(journal, form, **filters))


def ids(journal: Journal, form: Format, **filters: Any) -> list[str]:
    return [row["id"] for row in exported(journal, form, **filters)]


def test_each_format_has_its_turns_and_columns(any_journal: Journal) -> None:
    add(any_journal, "good", 1.0)
    add(any_journal, "bad", -1.0)
    add(any_journal, "mild", 0.2)
    add(any_journal, "mended", -1.0, "better so")
    add(any_journal, "silent")
    good, mended = exported(any_journal, Format.SFT)
    assert good == {
        "prompt": [{"role": "user", "content": "ask good"}],
        "completion": [{"role": "assistant", "content": "reply good"}],
        "tools": "[]",
        "id": "good",
        "agent": "agent",
        "version": 0,
    }
    assert mended["completion"] == [{"role": "assistant", "content": "better so"}]
    (pair,) = exported(any_journal, Format.DPO)
    assert [pair[name][0]["content"] for name in ("prompt", "chosen", "rejected")] == [
        "ask mended",
        "better so",
        "reply mended",
    ]
    assert [(row["id"], row["label"]) for row in exported(any_journal, Format.KTO)] == [
        ("good", True),
        ("bad", False),
        ("mended", False),
    ]
    told = {row["id"]: (row["reward"], row["source"]) for row in exported(any_journal, Format.REWARDS)}
    assert told == {"good": (1.0, "user"), "bad": (-1.0, "user"), "mild": (0.2, "user"), "mended": (-1.0, "user")}
    assert ids(any_journal, Format.SFT, min_reward=0.1) == ["good", "mild", "mended"]


@pytest.mark.parametrize("form", list(Format))
@pytest.mark.parametrize(
    "kept_out",
    [
        {"may_train": False},
        {"quarantine": "ids and log-probs differ"},
        {"is_aborted": True},
        {"finish_reason": "length"},
        {"state": {"skip_reason": "opted out with an earlier turn"}},
        {"state": {"skip_reason": "sampled from agent@v3, which was rolled back"}},
        {"state": {"kind": "side"}},
        {"state": {"upstream": "acme/remote"}},
    ],
)
def test_what_was_kept_out_of_training_never_leaves(journal: Journal, form: Format, kept_out: dict[str, Any]) -> None:
    add(journal, "out", 1.0, "better so", **kept_out)
    add(journal, "in", 1.0, "better so", state={"skip_reason": "stale: 5 versions behind"})
    assert ids(journal, form) == ["in"]


def test_filters(any_journal: Journal) -> None:
    add(any_journal, "a", 1.0, ended_at=10.0)
    add(any_journal, "b", 1.0, agent="other", ended_at=20.0)
    add(any_journal, "c", 1.0, tenant="acme", ended_at=30.0)
    assert ids(any_journal, Format.KTO) == ["a", "b", "c"]
    assert ids(any_journal, Format.KTO, agent="other") == ["b"]
    assert ids(any_journal, Format.KTO, tenant="acme") == ["c"]
    assert ids(any_journal, Format.KTO, since=20.0) == ["b", "c"]
    assert ids(any_journal, Format.KTO, until=20.0) == ["a"]


def test_pages_meet_without_a_gap_though_turns_end_together(
    any_journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_rows, "PAGE", 3)
    names = [f"t{n:02d}" for n in range(11)]
    for n, name in enumerate(names):
        add(any_journal, name, 1.0, ended_at=float(n // 4))
    assert ids(any_journal, Format.SFT) == names


def test_every_column_has_one_type_so_that_arrow_reads_it(journal: Journal, tmp_path: Path) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "2"}
    parts = {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]}
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
    add_turn(journal, interaction([parts, call, result], interaction_id="tools", tools=TOOLS))
    add_turn(journal, interaction([picture], interaction_id="picture"))
    add(journal, "plain", 1.0)
    for name in ("tools", "picture"):
        add_feedback(journal, name, 1.0)
    first, second = [json.loads(line) for line in training_rows.lines(training_rows.rows(journal, Format.SFT))]
    assert [message["content"] for message in first["prompt"]] == ["one two", "", "2"]
    assert first["prompt"][1]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert json.loads(first["tools"]) == TOOLS and second["id"] == "plain"
    assert "\n" not in next(training_rows.lines(iter([{"x": "a\nb"}])))[:-1]
