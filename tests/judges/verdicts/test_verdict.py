"""The parser reads what the prompt asks for. An answer that does not parse is never a score."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.judges import prompts
from burnish.judges.judge import identity
from burnish.judges.verdicts.verdict import PROMPT, UnreadableVerdict, Vote, as_text, parse_vote, verdict_messages


@pytest.mark.parametrize(
    ("answer", "vote"),
    [
        ("VERDICT: +1\nHINT: none", Vote(1, None)),
        ("VERDICT: -1\nHINT: Write without bold text.", Vote(-1, "Write without bold text.")),
        ("VERDICT: 1\nHINT: None.", Vote(1, None)),
        ("VERDICT: 0\nHINT:", Vote(0, None)),
        ("verdict: Abstain\nhint: none", Vote(None, None)),
        ("VERDICT: -1", Vote(-1, None)),
        ("Let me think.\n\nVERDICT:  +1  \r\n HINT: be brief \r\nbye", Vote(1, "be brief")),
        ("VERDICT: +1.\nHINT: none", Vote(1, None)),
    ],
)
def test_an_answer_in_the_asked_form_is_read(answer: str, vote: Vote) -> None:
    assert parse_vote(answer) == vote


@pytest.mark.parametrize(
    "answer",
    [
        "",
        ":",
        "I would say it did well.",
        "VERDICT:",
        "VERDICT: good",
        "VERDICT: 2",
        "VERDICT: 10",
        "VERDICT: +10",
        "VERDICT: 0.5",
        "VERDICT: -1.5",
        "VERDICT: 1/10",
        "VERDICT: --1",
        "VERDICT\n+1",
        "HINT: VERDICT",
        "VERDICT: +1, 0, -1 or abstain\nHINT: the instruction, or none",  # the prompt's own words, echoed
        "VERDICT: +1 or -1",
    ],
)
def test_anything_else_is_unreadable_and_quoted(answer: str) -> None:
    with pytest.raises(UnreadableVerdict, match="expected a line.*got " + re.escape(repr(answer[:40])[:-1])):
        parse_vote(answer)


@given(
    st.sampled_from(["+1", "1", "0", "-1", "abstain", "ABSTAIN"]),
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="\x85"), max_size=60),
    st.text(max_size=20).filter(lambda text: "verdict" not in text.lower() and not text.lstrip().startswith("{")),
)
def test_a_formatted_answer_is_parsed_back(score: str, hint: str, before: str) -> None:
    vote = parse_vote(f"{before}\nVERDICT: {score}\nHINT: {hint}")
    assert vote.score == {"+1": 1, "1": 1, "0": 0, "-1": -1, "abstain": None}[score.lower()]
    said = hint.strip()
    assert vote.hint == (None if said.lower().rstrip(".") in ("", "none") else said)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        vote = parse_vote(text)
    except UnreadableVerdict:
        return
    assert "verdict" in text.lower() and vote.score in (1, 0, -1, None)


def test_the_question_shows_the_last_messages_the_reply_and_what_came_back() -> None:
    conversation = [{"role": "user", "content": f"message {i}"} for i in range(9)]
    system, question = verdict_messages(conversation, "the reply", "no bold", "feedback", last_messages=3)
    assert system["role"] == "system" and "VERDICT: +1, 0, -1 or abstain" in system["content"]
    text = question["content"]
    assert "message 5" not in text and '{"user": "message 6"}\n{"user": "message 7"}\n{"user": "message 8"}\n' in text
    assert re.search(r'<came_back ([0-9a-f]{8})>\n{"feedback": "no bold"}\n<end \1>', text)
    assert re.search(r'<reply [0-9a-f]{8}>\n{"assistant": "the reply"}\n', text)


def test_long_messages_are_clipped_in_the_middle() -> None:
    long = "a" * 50 + "b" * 400 + "c" * 50
    _, question = verdict_messages([{"role": "user", "content": long}], long, long, "user", clip_chars=100)
    assert question["content"].count("a" * 50 + " [400 characters left out] " + "c" * 50) == 3


def test_marks_inside_messages_are_not_filled() -> None:
    _, question = verdict_messages([{"role": "user", "content": "{reply} {0} {"}], "secret", "{origin}", "user")
    assert '{"user": "{reply} {0} {"}' in question["content"]
    assert '{"user": "{origin}"}' in question["content"]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "hi"}, "hi"),
        ({"content": None}, ""),
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]},
            "a[image_url]b",
        ),
        ({"content": "x", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]}, 'x\nf({"a": 1})'),
        ({"content": [None, "plain", 3]}, None),
        ({"content": {"a": 1}}, None),
        ({"content": [{"type": "text", "text": None}]}, None),
        ({"tool_calls": "no"}, None),
        ({"tool_calls": [None, {"function": None}, {"function": {"name": "f"}}, {}]}, None),
    ],
)
def test_every_message_can_be_shown(message: dict[str, Any], text: str | None) -> None:
    """Clients shape messages. One that cannot be shown would stop the judge at this turn for ever."""
    shown = as_text(message)
    assert isinstance(shown, str)
    if text is not None:
        assert shown == text


@pytest.mark.parametrize("part", ["system", "user"])
def test_a_judges_identity_changes_with_the_prompts_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    before = identity("base", PROMPT)
    assert before.startswith("base/") and len(before) == len("base/") + 12
    assert identity("other", PROMPT) != before
    for file in prompts._FOLDER.glob("*.md"):
        shutil.copy(file, tmp_path)
    monkeypatch.setattr(prompts, "_FOLDER", tmp_path)
    prompts._text.cache_clear()
    assert identity("base", PROMPT) == before
    file = tmp_path / f"{PROMPT}.{part}.md"
    file.write_text(file.read_text() + "\nBe strict.")
    prompts._text.cache_clear()
    assert identity("base", PROMPT) != before
    monkeypatch.undo()
    prompts._text.cache_clear()
    assert identity("base", PROMPT) == before
