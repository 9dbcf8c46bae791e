"""The shipped prompts: abilities for the gate, anchors for training, and abilities that neither ever sees."""

import hashlib
import json
import re
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from burnish.adapters.evidence.base_answers import BaseRecord
from burnish.adapters.evidence.gate import N_MIN_RETENTION
from burnish.config import OF_KNOWN_BASES
from burnish.learner.data.anchors import MAX_NEW_TOKENS
from burnish.server.rollout.forgetting_prompts import read_prompts

HOME = Path(__file__).parents[2]
ABILITIES = HOME / "src" / "burnish" / "data" / "abilities.jsonl"
ANCHORS = HOME / "src" / "burnish" / "data" / "anchors.jsonl"
UNSEEN = HOME / "sandbox" / "demo" / "unseen.jsonl"
FILES = (ABILITIES, ANCHORS, UNSEEN)
CHECKED = (ABILITIES, UNSEEN)
KINDS = {
    *("facts", "arithmetic", "formats", "instructions", "code", "tools", "languages", "turns", "reading", "words"),
}
MOST_CHARACTERS = 20_000
MOST_SECONDS = 0.1
"""A check that is linear needs a few milliseconds. A quadratic one needs seconds."""

Row = dict[str, Any]


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def key(row: Row) -> str:
    """The conversation without case and punctuation."""
    words = " ".join(message["content"] for message in row["messages"])
    return " ".join(re.findall(r"\w+", words.casefold()))


def of_the_last_user(row: Row) -> str:
    return str([message["content"] for message in row["messages"] if message["role"] == "user"][-1])


@pytest.mark.parametrize(("path", "fewest"), [(ABILITIES, 440), (ANCHORS, 360), (UNSEEN, 220)], ids=lambda x: str(x))
def test_a_file_has_enough_prompts_with_ids_of_their_own(path: Path, fewest: int) -> None:
    found = rows(path)
    assert len(found) >= fewest
    assert len({row["id"] for row in found}) == len(found)
    fields = {"id", "kind", "messages", "tools"} | ({"check", "answer", "wrong"} if path in CHECKED else set())
    assert all(set(row) == fields for row in found)


def test_no_id_occurs_in_two_files() -> None:
    ids = [row["id"] for path in FILES for row in rows(path)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(("path", "fewest"), [(ABILITIES, 40), (UNSEEN, 20)], ids=lambda x: str(x))
def test_the_kinds_are_roughly_even(path: Path, fewest: int) -> None:
    counts = Counter(row["kind"] for row in rows(path))
    assert set(counts) == KINDS
    assert min(counts.values()) >= fewest
    assert max(counts.values()) <= 1.5 * min(counts.values())


@pytest.mark.parametrize("path", CHECKED, ids=lambda path: path.name)
def test_the_first_prompts_of_a_file_are_of_all_kinds(path: Path) -> None:
    found = rows(path)
    for n in (32, 64, 96, len(found) // 2):
        counts = Counter(row["kind"] for row in found[:n])
        assert set(counts) == KINDS
        assert max(counts.values()) <= 2 * min(counts.values()), n


@pytest.mark.parametrize("path", CHECKED, ids=lambda path: path.name)
def test_a_check_tells_a_right_reply_from_a_wrong_one(path: Path) -> None:
    """No check passes an empty reply or the prompt's own words."""
    faults = []
    for row, prompt in zip(rows(path), read_prompts(path, None), strict=True):
        replies = {"answer": row["answer"], "wrong": row["wrong"], "nothing": "", "echo": of_the_last_user(row)}
        passed = {name for name, reply in replies.items() if prompt.passes({"content": reply})}
        if passed != {"answer"}:
            faults.append((row["id"], passed))
    assert faults == []


@pytest.mark.parametrize("path", CHECKED, ids=lambda path: path.name)
def test_a_check_does_not_mind_a_style(path: Path) -> None:
    """Users may teach an opening, a sign-off, bold type or lower case. A prompt that itself says how to write may
    refuse some of these.
    """
    faults = []
    for row, prompt in zip(rows(path), read_prompts(path, None), strict=True):
        asked, answer = of_the_last_user(row), row["answer"]
        styles = {}
        if not asked.startswith(("Reply with only", "Answer with true or false")):
            styles["opening"] = f"Sure! {answer}"
            styles["closing"] = f"{answer}\n\nIs there something else? Yours, Ada"
        if "italics" not in asked:
            styles["bold"] = f"**{answer}**"
        if "capital letter" not in asked and "camelCase" not in asked:
            styles["lower case"] = answer.lower()
        faults += [(row["id"], style) for style, reply in styles.items() if not prompt.passes({"content": reply})]
    assert faults == []


@pytest.mark.parametrize("path", CHECKED, ids=lambda path: path.name)
def test_a_check_takes_no_long_time(path: Path) -> None:
    faults = []
    for row, prompt in zip(rows(path), read_prompts(path, None), strict=True):
        for piece in (row["wrong"], row["answer"][:-1], of_the_last_user(row) + " "):
            reply = (piece * MOST_CHARACTERS)[:MOST_CHARACTERS]
            start = time.process_time()
            prompt.passes({"content": reply})
            if (seconds := time.process_time() - start) > MOST_SECONDS:
                faults.append((row["id"], seconds))
    assert faults == []


def test_no_prompt_occurs_twice() -> None:
    counts = Counter(key(row) for path in FILES for row in rows(path))
    assert [words for words, n in counts.items() if n > 1] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_messages_are_a_valid_chat(path: Path) -> None:
    """A system message first if at all, then user and assistant in turn. A tool's result follows its call."""
    follows = {"start": {"system", "user"}, "system": {"user"}, "user": {"assistant"}, "assistant": {"user"}}
    for row in rows(path):
        before = "start"
        for message in row["messages"]:
            role = message["role"]
            is_result = role == "tool" and before == "assistant"
            assert is_result or role in follows[before], row["id"]
            before = role
        assert before in ("user", "tool"), row["id"]
        for message, result in pairwise(row["messages"]):
            if result["role"] == "tool":
                (call,) = message["tool_calls"]
                assert call["id"] == result["tool_call_id"]
                offered = {tool["function"]["name"]: tool["function"] for tool in row["tools"]}
                assert call["function"]["name"] in offered, row["id"]
                arguments = json.loads(call["function"]["arguments"])
                assert set(arguments) <= set(offered[call["function"]["name"]]["parameters"]["properties"]), row["id"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_tool_has_a_schema(path: Path) -> None:
    for row in rows(path):
        if row["tools"] is None:
            assert row["kind"] != "tools", row["id"]
        for tool in row["tools"] or ():
            parameters = tool["function"]["parameters"]
            assert tool["type"] == "function"
            assert tool["function"]["description"]
            assert set(parameters["required"]) <= set(parameters["properties"])


def test_what_a_known_base_says_to_the_prompts_ships_for_the_present_prompts() -> None:
    (answers,) = OF_KNOWN_BASES.glob("base-answers-*.json")
    known = json.loads(answers.read_text(encoding="utf-8"))
    base, prompts, *_ = str(known["identity"]).split()
    record = BaseRecord(Path("not-there") / answers.name, str(known["identity"]))
    assert prompts == digest(ABILITIES)
    assert answers.stem.endswith(hashlib.sha256(known["identity"].encode()).hexdigest()[:16])
    assert sum(answer is not None for answer in record.read()) >= N_MIN_RETENTION and record.standing() is None
    identity = f"{base} {digest(ANCHORS)} {MAX_NEW_TOKENS} first clause"
    name = f"anchors-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
    assert len(json.loads((OF_KNOWN_BASES / name).read_text(encoding="utf-8"))) == len(rows(ANCHORS))
